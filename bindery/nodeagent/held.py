"""The resources that the containers of a pod hold, as text in an annotation. Pure.

Without checkpoint files, a hollow node has no other place to store this record. The annotation is
written in one request with the pod's status, so a pod runs if and only if its record exists. After
a restart, the records of a node's pods are converted to the checkpoints from which the kubelet's
managers start.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from bindery.nodecore.checkpoints.devices import FILE as DEVICES_FILE
from bindery.nodecore.checkpoints.devices import DeviceCheckpoint, DeviceEntry
from bindery.nodecore.checkpoints.store import CheckpointManager
from bindery.nodecore.container_manager import ContainerManager
from bindery.nodecore.cpu import restore as cpu_restore
from bindery.nodecore.cpu.state import CpuState
from bindery.nodecore.cpusets import EMPTY, CpuSet, CpuSetError, format_cpus, parse_cpus
from bindery.nodecore.errors import StateError
from bindery.nodecore.memory import restore as memory_restore
from bindery.nodecore.memory import tables
from bindery.nodecore.memory.state import MemoryState
from bindery.nodecore.numamemory import Block

ANNOTATION: Final = "hollow.bindery.dev/held"
"""Annotation of a pod on a hollow node: JSON, container -> the CPUs, memory and devices that it
holds.
"""


class HeldBlock(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Memory or huge pages on a group of NUMA zones; bytes."""

    zones: tuple[int, ...]
    resource: str
    size: int


class HeldContainer(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """The resources that one container holds."""

    cpus: str = ""
    """Exclusive CPUs, such as 0-3; empty if the container runs on the shared CPUs."""
    memory: list[HeldBlock] = msgspec.field(default_factory=list)
    devices: dict[str, dict[int, list[str]]] = msgspec.field(default_factory=dict)
    """Resource -> NUMA zone -> ids."""


Held = Mapping[str, HeldContainer]
"""Container -> the resources that it holds."""

_NOTHING: Final = HeldContainer()
_DECODER: Final = msgspec.json.Decoder(dict[str, HeldContainer])


def of_pod(manager: ContainerManager, uid: str, containers: Iterable[str]) -> Held:
    """Return what each container of the pod `uid` holds, without containers that hold nothing."""
    cpus = manager.cpu.state.containers.get(uid, {})
    memory = manager.memory.state.containers.get(uid, {})
    devices = manager.devices.state.held.get(uid, {})
    found = {
        name: HeldContainer(
            cpus=format_cpus(cpus.get(name, EMPTY)),
            memory=[
                HeldBlock(zones=one.numa_nodes, resource=one.resource, size=one.size)
                for one in memory.get(name, ())
            ],
            devices={
                resource: {zone: list(ids) for zone, ids in held.by_node.items()}
                for resource, held in devices.get(name, {}).items()
            },
        )
        for name in containers
    }
    return {name: held for name, held in found.items() if held != _NOTHING}


def encode(held: Held) -> str:
    """Return the annotation's text."""
    return msgspec.json.encode(held).decode()


def decode(text: str) -> Held:
    """Return the record in an annotation; raises StateError for other text."""
    try:
        return _DECODER.decode(text)
    except msgspec.DecodeError as error:
        raise StateError(f"the annotation {ANNOTATION} cannot be read: {error}") from error


def restore(
    manager: ContainerManager,
    pods: Mapping[str, Held],
    checkpoints: CheckpointManager,
    device_checkpoints: CheckpointManager,
) -> None:
    """Write the checkpoints that a kubelet with `pods` would start from.

    `manager` has started without pods. `pods`: UID -> the resources of the containers.

    Raises:
        StateError: the records contradict each other or the machine.
    """
    features = manager.config.features
    if manager.cpu.allocatable_cpus():
        cpus = _cpu_state(manager.cpu.state.default, manager.config.cpus.cpus, pods)
        cpu_restore.save(checkpoints, manager.cpu.policy_name, cpus, features=features)
    if manager.memory.state.machine:
        memory = _memory_state(manager.memory.state, pods)
        memory_restore.save(checkpoints, manager.memory.policy_name, memory, features=features)
    entries = tuple(
        DeviceEntry(uid, name, resource, {at: tuple(ids) for at, ids in zones.items()}, b"")
        for uid, containers in sorted(pods.items())
        for name, held in sorted(containers.items())
        for resource, zones in sorted(held.devices.items())
    )
    if entries:
        device_checkpoints.create(DEVICES_FILE, DeviceCheckpoint(entries, {}).encode())


def _cpu_state(default: CpuSet, everything: CpuSet, pods: Mapping[str, Held]) -> CpuState:
    containers: dict[str, dict[str, CpuSet]] = {}
    taken: CpuSet = EMPTY
    for uid, held in sorted(pods.items()):
        for name, one in sorted(held.items()):
            if not one.cpus:
                continue
            try:
                cpus = parse_cpus(one.cpus)
            except CpuSetError as error:
                raise StateError(f"pod {uid}, container {name}: {error}") from error
            if cpus & taken or not cpus <= everything:
                raise StateError(
                    f"pod {uid}, container {name}: the CPUs {one.cpus} are of another container, "
                    "or do not exist"
                )
            taken |= cpus
            containers.setdefault(uid, {})[name] = cpus
    return CpuState(default - taken, containers)


def _memory_state(initial: MemoryState, pods: Mapping[str, Held]) -> MemoryState:
    owned: list[tuple[str, Block]] = []
    containers: dict[str, dict[str, tuple[Block, ...]]] = {}
    for uid, held in sorted(pods.items()):
        for name, one in sorted(held.items()):
            if one.memory:
                blocks = tuple(Block(part.zones, part.resource, part.size) for part in one.memory)
                owned += [(f"pod: {uid}, container: {name}", block) for block in blocks]
                containers.setdefault(uid, {})[name] = blocks
    return MemoryState(tables.expected(initial.machine, owned), containers)
