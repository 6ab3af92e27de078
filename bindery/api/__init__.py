"""The vocabulary shared by all parts of Bindery.

Custom resources as pydantic models (one module for each kind), the configuration files, well-known
names, and Kubernetes quantities. Imports nothing of Bindery; `crds/` is generated from here.
"""
