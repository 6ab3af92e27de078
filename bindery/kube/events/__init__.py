"""Kubernetes events for users, about objects."""
