"""The agent's port, which the API server calls for logs, commands and ports of containers."""
