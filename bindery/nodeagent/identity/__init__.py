"""Who the node is: its certificates, and what its cloud provider knows of it.

`process` is the door. What to request and when is decided in `bindery.nodecore.certificates`.
"""
