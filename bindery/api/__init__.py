"""The vocabulary shared by all parts of Bindery.

The words of custom resources, the configuration files as pydantic models, well-known names, and
Kubernetes quantities. Imports nothing of Bindery. `kube.objects` declares the kinds.
"""
