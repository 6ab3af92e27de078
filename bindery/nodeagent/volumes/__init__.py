"""Volumes of a node without a kubelet: the decisions of `bindery.nodecore.volumes` are carried out.

`keeper` is the door. It runs the loops and starts the steps of `nodecore` as operations;
`operations` carries them out with the plugins, and records each change.
"""
