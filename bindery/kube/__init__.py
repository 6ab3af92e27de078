"""Client of the API server: calls, watch caches, leader election, events.

The only package that speaks HTTP to Kubernetes. Imports `bindery.api` alone.
"""
