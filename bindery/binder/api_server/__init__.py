"""All reads and writes of the binder on the API server."""
