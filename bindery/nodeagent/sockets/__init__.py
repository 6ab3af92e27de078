"""The sockets between a kubelet and its plugins: definitions, calls, registration.

`definitions` are generated from the published definitions of `k8s.io/kubelet` (`make protocols`).
"""
