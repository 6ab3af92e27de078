"""Nodes with NUMA zones, for the measurements of what a node decides and what is predicted."""

from random import Random

from bindery.api.names import NUMA_DETAIL_ANNOTATION
from bindery.api.numadetail import NumaDetail
from bindery.kube.objects.nodetopologies import (
    NUMA_ZONE,
    POLICY_ATTRIBUTE,
    ZONE_PREFIX,
    Attribute,
    NodeResourceTopology,
    Zone,
    ZoneResource,
)
from bindery.kube.objects.watched import Meta
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.container_manager import ContainerManager, NodeConfig
from bindery.nodecore.devices.state import Device
from bindery.nodecore.machine import uniform
from bindery.nodecore.pods import Container, Pod
from bindery.nodecore.prediction.zones import NodeZones
from bindery.nodecore.topology import policies

GIB = 1 << 30
_DETAIL = NumaDetail(cpu_manager_policy="static", memory_manager_policy="Static")
DEVICES = ("example.com/gpu", "example.com/nic")


class Pods:
    """The active pods of the node."""

    def __init__(self) -> None:
        self.pods: list[Pod] = []

    def active_pods(self) -> list[Pod]:
        """Return them."""
        return self.pods

    def sources_ready(self) -> bool:
        """Return that all are known."""
        return True


def managers(zones: int, policy: str, pods: Pods) -> ContainerManager:
    """Return the managers of a machine with 16 cores, two threads each, in every zone."""
    machine = uniform(
        sockets=2 if zones > 1 else 1,
        numa_per_socket=max(1, zones // 2),
        cores_per_numa=16,
        threads_per_core=2,
        memory_bytes_per_numa=64 * GIB,
    )
    config = NodeConfig(
        machine,
        {"cpu": zones * 32_000, "memory": zones * 64 * GIB},
        system_reserved={"cpu": 2000, "memory": zones * GIB},
        cpu_policy="static",
        memory_policy="Static",
        reserved_memory=[(zone, {"memory": GIB}) for zone in range(zones)],
        topology_policy=policy,
    )
    stores = CheckpointManager(MemoryStore()), CheckpointManager(MemoryStore())
    made = ContainerManager(config, pods, *stores, clock=lambda: 0.0)
    made.start()
    for resource in DEVICES:
        made.devices.register(resource)
        made.devices.update(
            resource,
            [Device(f"{zone}-{place}", (zone,)) for zone in range(zones) for place in range(4)],
        )
    return made


def admit(of: ContainerManager, asking: Pod) -> bool:
    """Admit a pod whose plugins answer with nothing; return whether it may run."""
    is_admitted = of.admit(asking).admit
    if is_admitted:
        of.devices.record(dict.fromkeys(of.devices.calls(asking.uid), b""))
    return is_admitted


def pod(uid: str, cpus: int = 4, devices: int = 1, memory_gib: int = 4) -> Pod:
    """Return a Guaranteed pod with whole CPUs, memory and devices of two kinds."""
    amounts = {"cpu": cpus * 1000, "memory": memory_gib * GIB, **dict.fromkeys(DEVICES, devices)}
    return Pod(uid, (Container("app", amounts, amounts),), name=uid)


def zones_of_node(zones: int, policy: str, node: int) -> NodeZones:
    """Return a node as counts; `node` is the seed of how much is in use on each zone."""
    random = Random(node)
    totals = {"cpu": 32, "memory": 63 * GIB, **dict.fromkeys(DEVICES, 4)}
    free = [
        {
            "cpu": random.randint(0, 30),
            "memory": random.randint(0, 63) * GIB,
            **{device: random.randint(0, 4) for device in DEVICES},
        }
        for _ in range(zones)
    ]
    return NodeZones(tuple(free), (totals,) * zones, policy)


def topology_report(node: str, zones: int) -> NodeResourceTopology:
    """Return what an empty node of `benchmarks.workload` reports, with the policy of one zone."""
    resources = {"cpu": 64 // zones, "memory": 256 * GIB // zones}
    listed = [
        ZoneResource(name=name, capacity=text, allocatable=text, available=text)
        for name, amount in resources.items()
        for text in (str(amount),)
    ]
    return NodeResourceTopology(
        metadata=Meta(name=node, annotations={NUMA_DETAIL_ANNOTATION: _DETAIL.encode()}),
        zones=[
            Zone(name=f"{ZONE_PREFIX}{number}", type=NUMA_ZONE, resources=listed)
            for number in range(zones)
        ],
        attributes=[Attribute(name=POLICY_ATTRIBUTE, value=policies.SINGLE_NUMA_NODE)],
    )
