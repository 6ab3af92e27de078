"""Talking to the API server: client, watch caches, Lease election, events, patches.

The only package that speaks HTTP to Kubernetes. Imports `bindery.api` alone.
"""
