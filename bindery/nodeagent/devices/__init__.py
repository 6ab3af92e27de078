"""The devices of a node: read from NVML, from a file or from the kubelet, and published.

`inventory` has the devices and the interface of their sources. `hamiregister` gives them the form
in which HAMi's annotations have them; `reporter` reads them and writes the annotations of the node.
"""
