"""Runs the pods of one real node with a container runtime, as a kubelet does.

`agent` is the entry point. What is decided without the runtime is in `bindery.nodecore.podsync`.
"""
