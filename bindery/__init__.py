"""Bindery: a batch scheduler for GPU and AI work on Kubernetes."""

from importlib.metadata import version

__version__ = version("bindery")
