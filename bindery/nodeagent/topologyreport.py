"""Builds the NodeResourceTopology of a node from its kubelet's state. Pure.

Used by `topologies` for nodes of agents, and by `beside` for nodes with a kubelet. As with the
published exporters, a zone lists only resources that are allocated by zone: CPUs under the static
policy, memory and huge pages under the Static policy, and devices. CPUs used by containers on
shared CPUs are not deducted, as in the kubelet.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from bindery.api import names, podfingerprint
from bindery.api.numadetail import NumaDetail
from bindery.kube.objects.nodetopologies import (
    NODE_RESOURCE_TOPOLOGIES,
    NUMA_ZONE,
    POLICY_ATTRIBUTE,
    SCOPE_ATTRIBUTE,
)
from bindery.nodeagent import heldzones
from bindery.nodeagent.hardware import MachineSettings
from bindery.nodeagent.heldzones import zone_name
from bindery.nodecore import pods
from bindery.nodecore.container_manager import ContainerManager, NodeConfig
from bindery.nodecore.cpu import manager as cpu_manager
from bindery.nodecore.cpusets import CpuSet, format_cpus
from bindery.nodecore.topology import policies
from bindery.nodecore.topology.manager import POD_SCOPE

Body = Mapping[str, Any]

_SAME: Final[Mapping[str, str]] = MappingProxyType({})

_LEGACY: Final = {
    policies.BEST_EFFORT: "BestEffort",
    policies.RESTRICTED: "Restricted",
    policies.SINGLE_NUMA_NODE: "SingleNUMANode",
}


class Reported(Protocol):
    """The part of a kubelet that reports need."""

    @property
    def name(self) -> str:
        """The name of the kubelet's node."""

    @property
    def machine(self) -> MachineSettings:
        """Hardware and settings."""

    @property
    def manager(self) -> ContainerManager:
        """The resources that containers hold."""

    def admitted(self) -> Iterable[pods.Pod]:
        """Return the pods that run."""


@dataclass(frozen=True)
class Layout:
    """The parts of a report that never change on one machine; see `NumaDetail`."""

    cpus: Mapping[int, CpuSet]
    cpu_lists: Mapping[str, str]
    cores: list[str]
    uncore_caches: list[str]


def layout_of(config: NodeConfig) -> Layout:
    """Return the layout of the machine of `config`."""
    cpus = {
        node.id: frozenset(cpu for core in node.cores for cpu in core.threads)
        for node in config.machine.nodes
    }
    caches: dict[int, set[int]] = {}
    for cpu, info in config.cpus.details.items():
        caches.setdefault(info.uncore, set()).add(cpu)
    return Layout(
        cpus=cpus,
        cpu_lists={zone_name(node): format_cpus(listed) for node, listed in cpus.items()},
        cores=[
            format_cpus(frozenset(core.threads))
            for node in config.machine.nodes
            for core in node.cores
        ],
        uncore_caches=[format_cpus(frozenset(listed)) for _, listed in sorted(caches.items())],
    )


def body(
    kubelet: Reported,
    layout: Layout,
    node_uid: str,
    api_uids: Mapping[str, str] = _SAME,
) -> Body:
    """Return the whole object, with the Node as its owner.

    `api_uids`: the kubelet's UID of a pod -> that of the API server, for pods with two.
    """
    config = kubelet.machine.config
    running = list(kubelet.admitted())
    fingerprint = podfingerprint.sign((pod.namespace, pod.name) for pod in running)
    attributes = {
        POLICY_ATTRIBUTE: config.topology_policy,
        SCOPE_ATTRIBUTE: config.topology_scope,
        podfingerprint.ATTRIBUTE: fingerprint,
        podfingerprint.METHOD_ATTRIBUTE: podfingerprint.METHOD_ALL,
    }
    return {
        "apiVersion": NODE_RESOURCE_TOPOLOGIES.api_version,
        "kind": NODE_RESOURCE_TOPOLOGIES.kind,
        "metadata": {
            "name": kubelet.name,
            "annotations": {
                podfingerprint.ANNOTATION: fingerprint,
                names.NUMA_DETAIL_ANNOTATION: _detail(kubelet, layout, running, api_uids).encode(),
            },
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": kubelet.name, "uid": node_uid}
            ],
        },
        "topologyPolicies": [_legacy_policy(config)],
        "attributes": [{"name": name, "value": text} for name, text in attributes.items()],
        "zones": [
            {
                "name": zone_name(node.id),
                "type": NUMA_ZONE,
                "costs": [
                    {"name": zone_name(other.id), "value": distance}
                    for other, distance in zip(
                        config.machine.nodes, node.distances or (), strict=False
                    )
                ],
                "resources": list(_resources(kubelet, layout, node.id)),
            }
            for node in config.machine.nodes
        ],
    }


def _resources(kubelet: Reported, layout: Layout, node: int) -> Iterator[Body]:
    """Yield the resources of one NUMA node."""
    manager = kubelet.manager
    allocatable = manager.cpu.allocatable_cpus()
    if allocatable:
        cpus = layout.cpus[node]
        free = manager.cpu.state.default & allocatable
        yield _amounts(pods.CPU, len(cpus), len(cpus & allocatable), len(cpus & free))
    state = manager.memory.state.machine.get(node)
    for name, table in sorted(state.memory.items()) if state is not None else ():
        yield _amounts(name, table.total, table.allocatable, table.free)
    for resource, devices in sorted(kubelet.machine.devices.items()):
        here = {one.id for one in devices if node in (one.numa_nodes or ())}
        if here:
            available = manager.devices.state.available(resource)
            yield _amounts(resource, len(here), len(here), len(here & available))


def _amounts(name: str, capacity: int, allocatable: int, available: int) -> Body:
    return {
        "name": name,
        "capacity": str(capacity),
        "allocatable": str(allocatable),
        "available": str(available),
    }


def _detail(
    kubelet: Reported,
    layout: Layout,
    running: Sequence[pods.Pod],
    api_uids: Mapping[str, str],
) -> NumaDetail:
    config, manager = kubelet.machine.config, kubelet.manager
    if manager.cpu.policy_name == cpu_manager.NONE:
        free = config.cpus.cpus
    else:
        free = manager.cpu.state.default & manager.cpu.allocatable_cpus()
    devices: dict[str, dict[str, list[str]]] = {}
    for resource, listed in sorted(kubelet.machine.devices.items()):
        available = manager.devices.state.available(resource)
        by_zone = devices.setdefault(resource, {})
        for one in listed:
            zone = zone_name(one.numa_nodes[0]) if one.numa_nodes else ""
            ids = by_zone.setdefault(zone, [])
            if one.id in available:
                ids.append(one.id)
    return NumaDetail(
        pods=sorted(api_uids.get(pod.uid, pod.uid) for pod in running),
        cpu_manager_policy=manager.cpu.policy_name,
        cpu_manager_options=dict(config.cpu_options),
        memory_manager_policy=manager.memory.policy_name,
        topology_options=dict(config.topology_options),
        cpus=dict(layout.cpu_lists),
        free=format_cpus(free),
        cores=layout.cores,
        uncore_caches=layout.uncore_caches,
        devices=devices,
        held={
            api_uids.get(uid, uid): part
            for uid, part in heldzones.parts(
                manager, layout.cpus, (pod.uid for pod in running)
            ).items()
        },
        memory_groups={
            zone_name(node): [zone_name(other) for other in group]
            for node, group in heldzones.memory_groups(manager.memory.state.machine).items()
        },
    )


def _legacy_policy(config: NodeConfig) -> str:
    """Return the policy and the scope in the form of `topologyPolicies`."""
    word = _LEGACY.get(config.topology_policy)
    if word is None:
        return "None"
    return f"{word}{'Pod' if config.topology_scope == POD_SCOPE else 'Container'}Level"
