"""Computes the part of a node's zones that each pod holds, for reports. Pure.

Used by `topologyreport`. The checkpoint of the memory manager has the size of a block that lies on
several zones, and not its amount on each of them. So the pods are released one after another as the
kubelet would do it: the parts of all pods are together exactly the use of the zones.
"""

from collections.abc import Iterable, Mapping

from bindery.api.numadetail import PodZones
from bindery.kube.objects.nodetopologies import ZONE_PREFIX
from bindery.nodecore.checkpoints.devices import NO_NUMA_NODE
from bindery.nodecore.container_manager import ContainerManager
from bindery.nodecore.cpusets import CpuSet
from bindery.nodecore.devices.state import Held
from bindery.nodecore.memory import tables
from bindery.nodecore.numamemory import Blocks, NumaNodeState
from bindery.nodecore.pods import CPU

Amounts = dict[int, dict[str, int]]
"""NUMA node -> resource -> amount."""


def parts(
    manager: ContainerManager, cpus: Mapping[int, CpuSet], uids: Iterable[str]
) -> dict[str, PodZones]:
    """Return UID -> part of the pods that hold something. `cpus`: NUMA node -> its CPUs."""
    found: dict[str, PodZones] = {}
    states: tables.NodeStates = manager.memory.state.machine
    for uid in sorted(uids):
        held: Amounts = {}
        _add_cpus(held, manager.cpu.state.containers.get(uid, {}), cpus)
        blocks = _blocks(manager, uid)
        after = tables.release(states, blocks)
        _add_memory(held, states, after)
        states = after
        _add_devices(held, manager.devices.state.held.get(uid, {}).values())
        spans = sorted({one.numa_nodes for one in blocks if len(one.numa_nodes) > 1})
        if held or spans:
            found[uid] = PodZones(
                held={zone_name(node): dict(sorted(held[node].items())) for node in sorted(held)},
                memory=[[zone_name(node) for node in span] for span in spans],
            )
    return found


def memory_groups(states: Mapping[int, NumaNodeState]) -> dict[int, tuple[int, ...]]:
    """Return NUMA node -> the nodes whose memory is used together; without unused ones."""
    return {node: state.cells for node, state in sorted(states.items()) if state.assignments}


def zone_name(node: int) -> str:
    """Return the name of the zone of a NUMA node."""
    return f"{ZONE_PREFIX}{node}"


def _blocks(manager: ContainerManager, uid: str) -> Blocks:
    state = manager.memory.state
    whole = state.pods.get(uid)
    if whole is not None:
        return whole
    return tuple(block for blocks in state.containers.get(uid, {}).values() for block in blocks)


def _add_cpus(held: Amounts, containers: Mapping[str, CpuSet], cpus: Mapping[int, CpuSet]) -> None:
    # Containers take over the CPUs of init containers, so the same CPU may be listed twice.
    own = frozenset[int]().union(*containers.values())
    for node, listed in cpus.items():
        if own & listed:
            held.setdefault(node, {})[CPU] = len(own & listed)


def _add_memory(held: Amounts, before: tables.NodeStates, after: tables.NodeStates) -> None:
    for node, state in after.items():
        for resource, table in state.memory.items():
            given = table.free - before[node].memory[resource].free
            if given:
                held.setdefault(node, {})[resource] = given


def _add_devices(held: Amounts, containers: Iterable[Mapping[str, Held]]) -> None:
    ids: dict[tuple[int, str], set[str]] = {}
    for container in containers:
        for resource, devices in container.items():
            for node, listed in devices.by_node.items():
                ids.setdefault((node, resource), set()).update(listed)
    for (node, resource), own in ids.items():
        if node != NO_NUMA_NODE:
            held.setdefault(node, {})[resource] = len(own)
