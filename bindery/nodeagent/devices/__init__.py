"""The devices of a node: read from NVML, from a file or from the kubelet, and published.

`inventory` has the devices and the interface of their sources. `hamiregister` and `resourceslices`
give them the forms in which schedulers read them; `reporter` writes the annotations of the node.
"""
