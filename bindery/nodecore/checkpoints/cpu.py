"""The formats of `cpu_manager_state`: versions 1, 2 and 3.

Version 1 names containers by their runtime id, version 2 by pod and container name. Version 3 adds
the CPUs of whole pods; kubelets write it only with the feature PodLevelResourceManagers. All
versions take their checksum over an object that is called CPUManagerCheckpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bindery.nodecore.checkpoints import gotext
from bindery.nodecore.checkpoints.gotext import DecodeError, Json
from bindery.nodecore.cpusets import CpuSet, CpuSetError, format_cpus, parse_cpus
from bindery.nodecore.errors import CorruptCheckpointError

FILE: Final = "cpu_manager_state"

Entries = Mapping[str, Mapping[str, str]]
"""Pod UID -> container name -> list of CPUs."""

_NAME: Final = "CPUManagerCheckpoint"


@dataclass(frozen=True)
class CpuCheckpointV1:
    """Version 1.

    Attributes:
        default: the CPUs of the shared pool, in the list format.
        entries: container id -> list of CPUs.
    """

    policy: str
    default: str
    entries: Mapping[str, str] | None

    def checksum(self, type_name: str = _NAME) -> int:
        """Return the checksum of the content."""
        entries = gotext.mapping(self.entries)
        return _hash(type_name, *_head(self), ("Entries", "map[string]string", entries))

    def encode(self) -> bytes:
        """Return the file with its checksum."""
        return _encode(self, _NAME, entries=_sorted(self.entries))


@dataclass(frozen=True)
class CpuCheckpointV2:
    """Version 2.

    Attributes:
        policy: the name of the policy.
        default: the CPUs of the shared pool, in the list format.
        entries: pod UID -> container name -> list of CPUs.
    """

    policy: str
    default: str
    entries: Entries | None

    def checksum(self, type_name: str = _NAME) -> int:
        """Return the checksum of the content."""
        return _hash(type_name, *_head(self), _entries_field(self.entries))

    def encode(self) -> bytes:
        """Return the file with its checksum."""
        return _encode(self, _NAME, entries=_sorted_twice(self.entries))


@dataclass(frozen=True)
class CpuCheckpointV3:
    """Version 3: as version 2, with the CPUs of pods.

    Attributes:
        policy: the name of the policy.
        default: the CPUs of the shared pool, in the list format.
        entries: pod UID -> container name -> list of CPUs.
        pod_entries: pod UID -> its CPUs.
    """

    policy: str
    default: str
    entries: Entries | None
    pod_entries: Mapping[str, CpuSet] | None

    def checksum(self, type_name: str = _NAME) -> int:
        """Return the checksum of the content."""
        pods = _printed_pods(self.pod_entries)
        field = ("PodEntries", "state.PodCPUAssignments", pods)
        return _hash(type_name, *_head(self), _entries_field(self.entries), field)

    def encode(self) -> bytes:
        """Return the file with its checksum."""
        pods = {uid: format_cpus(cpus) for uid, cpus in sorted((self.pod_entries or {}).items())}
        written = {uid: {"cpuSet": cpus} if cpus else {} for uid, cpus in pods.items()}
        entries = _sorted_twice(self.entries)
        return _encode(self, _NAME, entries=entries, podEntries=written)


CpuCheckpoint = CpuCheckpointV1 | CpuCheckpointV2 | CpuCheckpointV3


def decode_v1(blob: bytes) -> CpuCheckpointV1:
    """Return the checkpoint of version 1 in `blob`. A checksum of 0 is accepted.

    Raises:
        DecodeError: the blob has another form.
        CorruptCheckpointError: the checksum is wrong.
    """
    place = "CPUManagerCheckpointV1"
    content = gotext.from_json(blob)
    found = gotext.field(content, "entries", dict, place, {})
    checkpoint = CpuCheckpointV1(
        policy=gotext.field(content, "policyName", str, place, ""),
        default=gotext.field(content, "defaultCpuSet", str, place, ""),
        entries=None if found is None else gotext.texts(found, f"{place}.entries"),
    )
    _verify(checkpoint, gotext.field(content, "checksum", int, place, 0), accept_zero=True)
    return checkpoint


def decode_v2(blob: bytes, *, pod_level_managers: bool = False) -> CpuCheckpointV2:
    """Return the checkpoint of version 2 in `blob`. A checksum of 0 is accepted.

    Without the feature PodLevelResourceManagers, a checksum over an object called
    CPUManagerCheckpointV2 is accepted too.

    Raises:
        DecodeError: the blob has another form.
        CorruptCheckpointError: the checksum is wrong.
    """
    place = "CPUManagerCheckpointV2"
    content = gotext.from_json(blob)
    checkpoint = CpuCheckpointV2(
        policy=gotext.field(content, "policyName", str, place, ""),
        default=gotext.field(content, "defaultCpuSet", str, place, ""),
        entries=_nested(content, place),
    )
    stored = gotext.field(content, "checksum", int, place, 0)
    if pod_level_managers or stored != checkpoint.checksum(place):
        _verify(checkpoint, stored, accept_zero=True)
    return checkpoint


def decode_v3(blob: bytes) -> CpuCheckpointV3:
    """Return the checkpoint of version 3 in `blob`.

    Raises:
        DecodeError: the blob has another form.
        CorruptCheckpointError: the checksum is wrong.
    """
    place = "CPUManagerCheckpoint"
    content = gotext.from_json(blob)
    checkpoint = CpuCheckpointV3(
        policy=gotext.field(content, "policyName", str, place, ""),
        default=gotext.field(content, "defaultCpuSet", str, place, ""),
        entries=_nested(content, place),
        pod_entries=_pods(content, place),
    )
    _verify(checkpoint, gotext.field(content, "checksum", int, place, 0), accept_zero=False)
    return checkpoint


def _head(checkpoint: CpuCheckpoint) -> tuple[tuple[str, str, str], ...]:
    return (
        ("PolicyName", "string", checkpoint.policy),
        ("DefaultCPUSet", "string", checkpoint.default),
    )


def _entries_field(entries: Entries | None) -> tuple[str, str, str]:
    inner = None if entries is None else {uid: gotext.mapping(entries[uid]) for uid in entries}
    return ("Entries", "map[string]map[string]string", gotext.mapping(inner))


def _printed_pods(pods: Mapping[str, CpuSet] | None) -> str:
    if pods is None:
        return gotext.NIL
    return gotext.mapping({uid: _printed_entry(cpus) for uid, cpus in pods.items()})


def _printed_entry(cpus: CpuSet) -> str:
    elements = gotext.mapping(dict.fromkeys(cpus, "{}"))
    inner = gotext.struct(("elems", "map[int]struct {}", elements))
    return gotext.struct(("CPUSet", "cpuset.CPUSet", inner))


def _hash(type_name: str, *fields: tuple[str, str, str]) -> int:
    printed = gotext.struct(*fields, ("Checksum", "checksum.Checksum", "0"))
    return gotext.fnv1a(f"(*state.{type_name}){printed}")


def _encode(checkpoint: CpuCheckpoint, type_name: str, **maps: Json) -> bytes:
    written = {name: content for name, content in maps.items() if content}
    return gotext.to_json(
        {
            "policyName": checkpoint.policy,
            "defaultCpuSet": checkpoint.default,
            **written,
            "checksum": checkpoint.checksum(type_name),
        }
    )


def _sorted(entries: Mapping[str, str] | None) -> Json:
    return dict(sorted((entries or {}).items()))


def _sorted_twice(entries: Entries | None) -> Json:
    return {uid: _sorted(containers) for uid, containers in sorted((entries or {}).items())}


def _nested(content: Json, place: str) -> dict[str, dict[str, str]] | None:
    entries = gotext.field(content, "entries", dict, place, {})
    if entries is None:
        return None
    return {uid: gotext.texts(found, f"{place}.entries") for uid, found in entries.items()}


def _pods(content: Json, place: str) -> dict[str, CpuSet] | None:
    entries = gotext.field(content, "podEntries", dict, place, {})
    if entries is None:
        return None
    pods = {}
    for uid, entry in entries.items():
        try:
            pods[uid] = parse_cpus(gotext.field(entry, "cpuSet", str, "podEntryJSON", ""))
        except CpuSetError as error:
            raise DecodeError(f"failed to parse cpuset: {error}") from error
    return pods


def _verify(checkpoint: CpuCheckpoint, stored: int, *, accept_zero: bool) -> None:
    actual = checkpoint.checksum()
    if stored != actual and not (accept_zero and stored == 0):
        raise CorruptCheckpointError(stored, actual)
