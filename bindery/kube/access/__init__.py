"""Address of the API server, and the credentials of this process."""
