"""Client of the API server: calls, watch caches, leader election, events.

The only package that sends requests to Kubernetes. Imports `bindery.api` alone.
"""
