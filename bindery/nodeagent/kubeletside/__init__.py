"""A kubelet's side of the sockets: finds plugins, registers them, calls them, and serves others.

What is decided is in `bindery.nodecore`; here are only the sockets, their deadlines and the tasks.
`node.NodeSockets` is the door.
"""
