"""What the binder reads and writes on the API server."""
