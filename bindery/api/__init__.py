"""The vocabulary that every part of Bindery shares.

Custom resources as pydantic models (one module a kind), the configuration files, well-known
names, and Kubernetes quantities. Imports nothing of Bindery; `crds/` is generated from here.
"""
