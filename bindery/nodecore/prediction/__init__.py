"""What a node will decide about a pod, from counts of what is free on its NUMA zones.

The topology manager's choice and the order of allocation are those of `nodecore`. The ids of CPUs
and devices are not needed: counts of whole CPUs, bytes of memory and devices for each zone are.

`plain` asks one node, in Python objects; `vectors` asks many nodes at once, in arrays.
A zone is a NUMA node of a machine; zone i is bit i of every mask, in the order of NUMA ids.
"""
