"""Commits: from a Statement to BindRequests and evictions in the API server."""
