"""The agent's port, which the API server calls for `kubectl logs`, `exec` and `port-forward`."""
