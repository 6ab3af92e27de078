"""Requests to the API server: connections, calls with retries, outages."""
