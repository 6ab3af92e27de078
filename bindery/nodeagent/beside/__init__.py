"""The agent beside a kubelet: reports its node's NUMA zones, and looks after its GPUs.

It reads the kubelet's files and its PodResources socket and writes nothing into the kubelet's
directories but the sockets of its plugins. `agent` is the entry point.

    sources.py        reads files and the socket
    podresources.py   devices, and the containers that hold them, from the socket's answers
    settings.py       the settings in force, from the configuration and the checkpoints
    observed.py       the kubelet's state at one moment
    reporting.py      the report from all of these, and what contradicts itself
    gpuparts.py       what is done with GPUs: the packages devices, shares, gpuclaims and gpuuse
    exporter.py       when to look, what to write, and events about problems
"""
