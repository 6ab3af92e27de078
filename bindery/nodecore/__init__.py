"""The decisions of a Kubernetes node, as pure functions: the kubelet's resource subsystems.

`docs/nodecore.md` lists what of the kubelet is here and where. Nothing here reads a clock, makes a
random number or opens a file on its own: callers pass these in. The behaviour is that of
Kubernetes 1.36; a differential test compares it with the kubelet's own Go packages.
"""
