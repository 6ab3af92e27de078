"""Random machines with pods, as a container manager has them and as counts of zones."""

from dataclasses import dataclass, field
from random import Random

from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.container_manager import ContainerManager, NodeConfig
from bindery.nodecore.devices.state import Device
from bindery.nodecore.machine import HugePages, uniform
from bindery.nodecore.masks import mask_of
from bindery.nodecore.pods import Container, Pod
from bindery.nodecore.prediction.arrays import POLICIES, SCOPES
from bindery.nodecore.prediction.zones import NodeZones
from tests.nodecore import answering
from tests.nodecore.nodes import MIB, CountingStore, FakeNode

DEVICES = ("example.com/gpu", "example.com/nic")
PAGES = "hugepages-2Mi"


@dataclass
class World:
    """A node with its managers, and the pods that it has admitted."""

    managers: ContainerManager
    node: FakeNode
    threads: int
    devices: dict[str, list[int]] = field(default_factory=dict)

    def admit(self, asking: Pod) -> bool:
        self.node.pods.append(asking)
        is_admitted = answering.admit(self.managers, asking).admit
        if not is_admitted:
            self.node.pods.remove(asking)
        return is_admitted

    def zones_of(self, asking: Pod) -> int:
        """Return the mask of zones on which the pod holds CPUs, memory or devices."""
        found: set[int] = set()
        of = self.managers
        numa = {cpu: node.id for node in of.config.machine.nodes for core in node.cores
                for cpu in core.threads}  # fmt: skip
        for one in asking.all_containers:
            found |= {numa[cpu] for cpu in of.cpu.exclusive_cpus(asking.uid, one.name)}
            found |= of.memory.memory_numa_nodes(asking, one)
            for held in of.devices.state.held.get(asking.uid, {}).get(one.name, {}).values():
                found |= set(held.by_node)
        return mask_of(found)

    def counts(self) -> NodeZones:
        """Return the node as counts."""
        of = self.managers
        for manager in (of.cpu, of.memory, of.devices):
            manager.remove_stale_state()
        config = of.config
        policy = of.cpu._policy  # the choice of reserved CPUs is its own
        free, totals, split, groups = [], [], [], []
        for node in config.machine.nodes:
            cpus = {cpu for core in node.cores for cpu in core.threads}
            available = cpus & policy.available(of.cpu.state) if policy else frozenset()
            split.append(len(available & policy.reserved_cores) if policy else 0)
            state = of.memory.state.machine.get(node.id)
            tables = state.memory if state else {}
            groups.append(mask_of(state.cells) if state and state.assignments else 0)
            free.append(
                {"cpu": len(available), **{name: table.free for name, table in tables.items()}}
            )
            totals.append(
                {"cpu": len(cpus), **{name: table.allocatable for name, table in tables.items()}}
            )
        for resource, counts in self.devices.items():
            left = of.devices.state.available(resource)
            for zone, count in enumerate(counts):
                totals[zone][resource] = count
                free[zone][resource] = sum(one.startswith(f"{zone}-") for one in left)
        return NodeZones(
            tuple(free),
            tuple(totals),
            config.topology_policy,
            config.topology_scope,
            config.cpu_policy == "static",
            config.memory_policy == "Static",
            bool(config.topology_options),
            self.threads if config.cpu_options else 0,
            tuple(split),
            tuple(groups),
            tuple(tuple(node.distances or ()) for node in config.machine.nodes),
        )


def random_world(random: Random) -> World:
    """Return a machine with one NUMA node a socket, as counts describe it exactly."""
    zones = random.choice((1, 2, 2, 2, 3, 4, 4, 6, 8))
    threads = random.choice((1, 1, 2))
    cores = random.choice((2, 4, 6))
    memory = random.choice((1000, 4000)) * MIB
    reserved_cpus = random.randint(1, 2) * (threads if random.random() < 0.7 else 1)
    machine = uniform(
        sockets=zones,
        cores_per_numa=cores,
        threads_per_core=threads,
        memory_bytes_per_numa=memory,
        huge_pages_per_numa=(HugePages(2048, 50),) if random.random() < 0.3 else (),
    )
    reserved = [(zone, {"memory": 100 * MIB}) for zone in range(zones)]
    has_options = random.random() < 0.3
    is_static = random.random() < 0.8
    config = NodeConfig(
        machine,
        {"cpu": zones * cores * threads * 1000, "memory": zones * memory},
        system_reserved={"cpu": reserved_cpus * 1000, "memory": 100 * MIB * zones},
        cpu_policy="static" if is_static else "none",
        cpu_options={"full-pcpus-only": "true"} if is_static and random.random() < 0.3 else {},
        memory_policy=random.choice(("None", "Static", "Static")),
        reserved_memory=reserved,
        topology_policy=random.choice((*POLICIES, *POLICIES[1:])),
        topology_scope=random.choice(SCOPES),
        topology_options={"prefer-closest-numa-nodes": "true"} if has_options else {},
    )
    node = FakeNode()
    stores = CheckpointManager(CountingStore()), CheckpointManager(CountingStore())
    world = World(ContainerManager(config, node, *stores, lambda: 0.0), node, threads)
    world.managers.start()
    for resource in DEVICES[: random.randint(0, 2)]:
        counts = [random.choice((0, 1, 2, 4)) for _ in range(zones)]
        if any(counts):
            world.devices[resource] = counts
            world.managers.devices.register(resource)
            ids = [
                Device(f"{zone}-{place}", (zone,))
                for zone, count in enumerate(counts)
                for place in range(count)
            ]
            world.managers.devices.update(resource, ids)
    return world


def random_pod(random: Random, uid: str, threads: int = 1) -> Pod:
    """Return a pod; its whole CPUs are multiples of `threads`, as only these can be counted."""
    is_guaranteed = random.random() < 0.75
    has_pages = random.random() < 0.15

    def container(name: str, is_sidecar: bool = False) -> Container:
        amounts = {
            "cpu": random.choice((1, 1, 2, 2, 3, 4, 6, 8)) * threads * 1000,
            "memory": random.choice((10, 100, 300, 800, 1500)) * MIB,
        }
        if random.random() < 0.15:
            amounts["cpu"] = 1500
        for resource in DEVICES:
            if random.random() < 0.35:
                amounts[resource] = random.choice((1, 1, 2, 3, 4))
        if has_pages and random.random() < 0.5:
            amounts[PAGES] = random.choice((2, 20, 60)) * MIB
        limits = dict(amounts)
        if not is_guaranteed:
            del limits["cpu"]
        return Container(name, amounts, limits, is_sidecar)

    init = tuple(
        container(f"init-{place}", is_sidecar=random.random() < 0.3)
        for place in range(random.choice((0, 0, 0, 1, 2)))
    )
    apps = tuple(container(f"app-{place}") for place in range(random.choice((1, 1, 1, 2, 3))))
    return Pod(uid, apps, init, name=uid)


def random_zones(random: Random) -> NodeZones:
    """Return a node as counts, also one that no sequence of pods leads to."""
    zones = random.choice((1, 2, 2, 2, 3, 4, 4, 5, 8))
    totals, free, groups, split = [], [], [], []
    names = [name for name in (*DEVICES, PAGES) if random.random() < 0.6]
    for zone in range(zones):
        has = {"cpu": random.choice((0, 4, 8)), "memory": random.choice((0, 500, 2000)) * MIB}
        has |= {name: random.choice((0, 1, 2, 4)) * (MIB if name == PAGES else 1)
                for name in names}  # fmt: skip
        totals.append(has)
        free.append({name: round(random.choice((0, 0.5, 0.8, 1, 1)) * total)
                     for name, total in has.items()})  # fmt: skip
        split.append(random.choice((0, 0, min(2, free[zone]["cpu"]))))
        groups.append(random.choice((0, 0, 0, 1 << zone)))
    if zones > 1 and random.random() < 0.3:
        one, other = random.sample(range(zones), 2)
        groups[one] = groups[other] = 1 << one | 1 << other
    distances = tuple(
        tuple(10 if one == other else random.choice((12, 20, 32)) for other in range(zones))
        for one in range(zones)
    )
    return NodeZones(
        tuple(free),
        tuple(totals),
        random.choice(POLICIES),
        random.choice(SCOPES),
        random.random() < 0.8,
        random.random() < 0.7,
        random.random() < 0.3,
        random.choice((0, 0, 1, 2)),
        tuple(split),
        tuple(groups),
        distances,
    )
