"""Volumes of a node without a kubelet: what `bindery.nodecore.volumes` decides is carried out here.

`keeper` is the door. It runs the loops and starts the steps of `nodecore` as operations;
`operations` carries them out with the plugins, and records what they have changed.
"""
