"""The commands that list: `get`, `queues`, `status`, `version`."""
