"""The agent beside a kubelet: reports what the pods of the kubelet's node hold of its NUMA zones.

It reads the kubelet's files and its PodResources socket and writes nothing into the kubelet's
directories. `agent` is the entry point.

    sources.py        reads files and the socket
    podresources.py   devices, and the containers that hold them, from the socket's answers
    settings.py       the settings in force, from the configuration and the checkpoints
    observed.py       the kubelet's state at one moment
    reporting.py      the report from all of these, and what contradicts itself
    exporter.py       when to look, what to write, and events about problems
"""
