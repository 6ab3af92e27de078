"""Real Kubernetes nodes on this machine: kubelet, containerd and runc, without a container engine.

`cluster` starts a control plane and its nodes in a network namespace of their own (`network`). Each
node has mounts, processes and cgroups of its own (`node`, `cgroups`). Only for Linux, as root;
`machine` returns what is missing.
"""
