"""From a committed Statement to the API: drafts, their order, and the writers."""
