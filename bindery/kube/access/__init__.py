"""Where the API server is, and the credentials of this process."""
