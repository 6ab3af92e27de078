"""Checkpoint files of any kind: what they are, whether they are intact, what stands in them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations
from typing import Final

from bindery.nodecore.checkpoints import allocations, claims, cpu, devices, gotext, memory
from bindery.nodecore.checkpoints.gotext import Json
from bindery.nodecore.containers import ContainerIds
from bindery.nodecore.cpu import restore as cpu_restore
from bindery.nodecore.cpusets import EMPTY, CpuSetError, format_cpus, parse_cpus
from bindery.nodecore.errors import CheckpointError, CorruptCheckpointError
from bindery.nodecore.features import Features

_ALL_VERSIONS: Final = Features(pod_level_resource_managers=True)


class CheckpointKind(StrEnum):
    """The kinds of checkpoint files, by their usual names."""

    CPU = cpu.FILE
    MEMORY = memory.FILE
    DEVICES = devices.FILE
    CLAIMS = claims.FILE
    ALLOCATIONS = allocations.FILE


VERSIONS: Final[Mapping[CheckpointKind, tuple[int, ...]]] = {
    CheckpointKind.CPU: (1, 2, 3),
    CheckpointKind.MEMORY: (1, 2),
}
"""The versions of the kinds that have several."""


@dataclass(frozen=True, order=True)
class Entry:
    """One allocation in a checkpoint file.

    Attributes:
        pod: the pod's UID, "-" for the node itself.
        container: the container's name, "-" for the pod as a whole.
        resource: the allocated resource, such as "cpus", "memory" or a device's resource.
        value: the amount, or the ids of the CPUs or devices.
    """

    pod: str
    container: str
    resource: str
    value: str


@dataclass(frozen=True)
class FileContent:
    """An intact checkpoint file.

    Attributes:
        policy: the policy that wrote it, "-" for kinds without one.
        findings: what contradicts itself in it.
    """

    kind: CheckpointKind
    version: int
    policy: str
    entries: tuple[Entry, ...]
    findings: tuple[str, ...] = ()


def read(blob: bytes) -> FileContent:
    """Return what stands in a checkpoint file of any kind.

    Raises:
        CheckpointError: it is no checkpoint, or its checksum is wrong.
    """
    kind = kind_of(gotext.from_json(blob))
    return _READERS[kind](blob)


def kind_of(content: Json) -> CheckpointKind:
    """Return the kind of a file by its fields; raises DecodeError if it is no checkpoint."""
    fields = {key.lower() for key in content}
    data = next((value for key, value in content.items() if key.lower() == "data"), None)
    if "defaultcpuset" in fields:
        return CheckpointKind.CPU
    if "machinestate" in fields:
        return CheckpointKind.MEMORY
    if isinstance(data, dict):
        return CheckpointKind.DEVICES
    if isinstance(data, str):
        return CheckpointKind.CLAIMS if "ClaimInfoStateList" in data else CheckpointKind.ALLOCATIONS
    raise gotext.DecodeError("the file is no checkpoint of a kubelet")


def convert(blob: bytes, version: int, containers: ContainerIds) -> bytes:
    """Return a file of the CPU manager or the memory manager in another version.

    `containers`: needed from or to version 1 of the CPU manager.

    Raises:
        CheckpointError: the file cannot be read, there is no such version of it, the version has
            no place for something in it, or a container has no id.
    """
    kind = kind_of(gotext.from_json(blob))
    if kind not in VERSIONS or version not in VERSIONS[kind]:
        raise CheckpointError(f"there is no version {version} of {kind}")
    if kind == CheckpointKind.MEMORY:
        return _convert_memory(blob, version)
    return _convert_cpu(blob, version, containers)


def _convert_memory(blob: bytes, version: int) -> bytes:
    _, content = _memory_version(blob)
    if version == 1 and content.pod_entries:
        raise CheckpointError("version 1 has no place for the memory of whole pods")
    pods = None if version == 1 else content.pod_entries or {}
    return replace(content, pod_entries=pods).encode()


def _convert_cpu(blob: bytes, version: int, containers: ContainerIds) -> bytes:
    content = cpu_restore.migrated(blob, containers, features=_ALL_VERSIONS)
    if version >= 3:
        return content.encode()
    if content.pod_entries:
        raise CheckpointError(f"version {version} has no place for the CPUs of whole pods")
    if version == 2:
        return cpu.CpuCheckpointV2(content.policy, content.default, content.entries).encode()
    ids = {ref: container_id for container_id, ref in containers.items()}
    entries = {}
    for uid, inner in (content.entries or {}).items():
        for name, cpus in inner.items():
            if (uid, name) not in ids:
                raise CheckpointError(f"no container id is given for container {name} of pod {uid}")
            entries[ids[uid, name]] = cpus
    return cpu.CpuCheckpointV1(content.policy, content.default, entries).encode()


def _read_cpu(blob: bytes) -> FileContent:
    version, checkpoint = _cpu_version(blob)
    entries = [Entry("-", "-", "shared cpus", checkpoint.default)]
    if isinstance(checkpoint, cpu.CpuCheckpointV1):
        found = {
            container_id: {"-": cpus} for container_id, cpus in (checkpoint.entries or {}).items()
        }
    else:
        found = {uid: dict(inner) for uid, inner in (checkpoint.entries or {}).items()}
    for uid, inner in sorted(found.items()):
        entries += [Entry(uid, name, "cpus", cpus) for name, cpus in sorted(inner.items())]
    if isinstance(checkpoint, cpu.CpuCheckpointV3):
        entries += [
            Entry(uid, "-", "cpus", format_cpus(cpus))
            for uid, cpus in sorted((checkpoint.pod_entries or {}).items())
        ]
    return FileContent(
        CheckpointKind.CPU, version, checkpoint.policy, tuple(entries), _overlaps(entries)
    )


def _cpu_version(blob: bytes) -> tuple[int, cpu.CpuCheckpoint]:
    fields = {key.lower(): value for key, value in gotext.from_json(blob).items()}
    if "podentries" in fields:
        return 3, cpu.decode_v3(blob)
    entries = fields.get("entries")
    if isinstance(entries, dict) and any(isinstance(one, str) for one in entries.values()):
        return 1, cpu.decode_v1(blob)
    try:
        return 2, cpu.decode_v2(blob)
    except CorruptCheckpointError:
        with suppress(CorruptCheckpointError):
            return 3, cpu.decode_v3(blob)  # without pods, only the checksum shows the version
        raise


def _overlaps(entries: list[Entry]) -> tuple[str, ...]:
    """Return which containers share their CPUs with the shared pool or with another pod's."""
    try:
        sets = [(entry, parse_cpus(entry.value)) for entry in entries]
    except CpuSetError as error:
        return (str(error),)
    default = sets[0][1] if sets else EMPTY
    own = sets[1:]
    pooled = [
        f"container {entry.container} of pod {entry.pod} shares the CPUs "
        f"{format_cpus(cpus & default)} with the shared pool"
        for entry, cpus in own
        if cpus & default
    ]
    shared = [
        f"pods {one.pod} and {other.pod} both have the CPUs {format_cpus(mine & theirs)}"
        for (one, mine), (other, theirs) in combinations(own, 2)
        if one.pod != other.pod and mine & theirs
    ]
    return (*pooled, *dict.fromkeys(shared))


def _read_memory(blob: bytes) -> FileContent:
    version, checkpoint = _memory_version(blob)
    entries = [
        Entry(
            "-", "-", f"{resource} of NUMA node {node}", f"{table.free} of {table.allocatable} free"
        )
        for node, state in sorted((checkpoint.machine or {}).items())
        for resource, table in sorted(state.memory.items())
    ]
    for uid, containers in sorted((checkpoint.entries or {}).items()):
        for name, blocks in sorted(containers.items()):
            entries += _block_entries(uid, name, blocks)
    for uid, blocks in sorted((checkpoint.pod_entries or {}).items()):
        entries += _block_entries(uid, "-", blocks)
    findings = (*_wrong_sums(checkpoint), *_wrong_nodes(checkpoint))
    return FileContent(CheckpointKind.MEMORY, version, checkpoint.policy, tuple(entries), findings)


def _wrong_sums(checkpoint: memory.MemoryCheckpoint) -> Iterator[str]:
    for node, state in sorted((checkpoint.machine or {}).items()):
        for resource, table in sorted(state.memory.items()):
            if table.reserved + table.free != table.allocatable:
                yield (
                    f"{resource} of NUMA node {node}: {table.reserved} reserved and {table.free} "
                    f"free are not {table.allocatable}"
                )


def _wrong_nodes(checkpoint: memory.MemoryCheckpoint) -> Iterator[str]:
    for uid, containers in sorted((checkpoint.entries or {}).items()):
        for name, blocks in sorted(containers.items()):
            for node in sorted({node for block in blocks for node in block.numa_nodes}):
                if node not in (checkpoint.machine or {}):
                    yield (
                        f"container {name} of pod {uid} has memory on NUMA node {node}, which is "
                        "not there"
                    )


def _memory_version(blob: bytes) -> tuple[int, memory.MemoryCheckpoint]:
    if "podentries" in {key.lower() for key in gotext.from_json(blob)}:
        return 2, memory.decode_v2(blob)
    try:
        return 1, memory.decode_v1(blob)
    except CorruptCheckpointError:
        with suppress(CorruptCheckpointError):
            return 2, memory.decode_v2(blob)  # without pods, only the checksum shows the version
        raise


def _block_entries(uid: str, container: str, blocks: memory.Blocks) -> list[Entry]:
    return [
        Entry(
            uid,
            container,
            block.resource,
            f"{block.size} on NUMA nodes {format_cpus(block.numa_nodes)}",
        )
        for block in sorted(blocks, key=lambda one: one.resource)
    ]


def _read_devices(blob: bytes) -> FileContent:
    checkpoint = devices.decode(blob)
    entries = [
        Entry("-", "-", resource, " ".join(sorted(ids)))
        for resource, ids in sorted((checkpoint.registered or {}).items())
    ]
    entries += sorted(
        Entry(
            entry.pod_uid,
            entry.container,
            entry.resource,
            " ".join(sorted({one for ids in entry.devices.values() for one in ids})),
        )
        for entry in checkpoint.entries or ()
    )
    return FileContent(CheckpointKind.DEVICES, 2, "-", tuple(entries))


def _read_claims(blob: bytes) -> FileContent:
    entries = [
        Entry(uid, "-", f"claim {claim.namespace}/{claim.name}", f"{driver}: {_names(held)}")
        for claim in claims.decode(blob) or ()
        for uid in sorted(claim.pod_uids) or ["-"]
        for driver, held in sorted(claim.drivers.items())
    ]
    return FileContent(CheckpointKind.CLAIMS, 1, "-", tuple(sorted(entries)))


def _names(held: tuple[claims.ClaimDevice, ...]) -> str:
    return " ".join(f"{device.pool}/{device.device}" for device in held)


def _read_allocations(blob: bytes) -> FileContent:
    entries = []
    for uid, pod in sorted(allocations.decode(blob).items()):
        owners = dict(pod.containers or {})
        if pod.pod_level is not None:
            owners["-"] = pod.pod_level
        for name, requirements in sorted(owners.items()):
            entries += _amounts(uid, name, "request", requirements.requests)
            entries += _amounts(uid, name, "limit", requirements.limits)
    return FileContent(CheckpointKind.ALLOCATIONS, 1, "-", tuple(entries))


def _amounts(uid: str, name: str, kind: str, amounts: Mapping[str, str]) -> list[Entry]:
    return [
        Entry(uid, name, f"{resource} {kind}", text) for resource, text in sorted(amounts.items())
    ]


_READERS: Final[Mapping[CheckpointKind, Callable[[bytes], FileContent]]] = {
    CheckpointKind.CPU: _read_cpu,
    CheckpointKind.MEMORY: _read_memory,
    CheckpointKind.DEVICES: _read_devices,
    CheckpointKind.CLAIMS: _read_claims,
    CheckpointKind.ALLOCATIONS: _read_allocations,
}
