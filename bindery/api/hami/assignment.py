"""The devices that a pod gets on its node: in the BindRequest, and in annotations of the pod.

The scheduler's plugin `hami` encodes an Assignment into the BindRequest, the binder's writes it
onto the pod in one patch, and again with the binding. Invariant: the pod gets exactly these keys of
the protocol; the patch removes other keys, which may be forged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from bindery.api.hami import extras, migallocations, names, poddevices
from bindery.api.hami.errors import HamiFormatError, shown
from bindery.api.hami.migallocations import MigAllocation
from bindery.api.hami.poddevices import Slots
from bindery.api.hami.vendor import Extra, Lock, Vendor
from bindery.api.hami.vendortable import BY_WORD, VENDORS


class _Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    devices: dict[str, str]
    indexes: dict[str, int] = {}
    mig: str = ""


class _RecordWire(msgspec.Struct, frozen=True):
    pod: str
    node: str
    devices: dict[str, str]
    mig: str = ""


@dataclass(frozen=True)
class Assignment:
    """The devices of one pod."""

    devices: Mapping[str, Slots]
    """Vendor's word -> the slots of all containers."""
    indexes: Mapping[str, int] = field(default_factory=dict)
    """UUID -> the device's index on its node."""
    mig: tuple[MigAllocation, ...] = ()

    @property
    def vendors(self) -> tuple[Vendor, ...]:
        """The vendors of the devices, in the table's order."""
        return tuple(vendor for vendor in VENDORS if vendor.word in self.devices)

    @property
    def locks(self) -> tuple[Lock, ...]:
        """The node locks that the pod needs, in the order in which all pods take them."""
        return tuple(sorted({v.lock for v in self.vendors if v.lock is not Lock.NONE}))

    def to_data(self) -> dict[str, Any]:
        """Return the JSON data for a BindRequest."""
        wire = _Wire(
            {word: poddevices.encode(slots) for word, slots in self.devices.items()},
            dict(self.indexes),
            migallocations.encode(self.mig) if self.mig else "",
        )
        built: dict[str, Any] = msgspec.to_builtins(wire)
        return built


def from_data(data: Mapping[str, Any]) -> Assignment:
    """Read the result of `to_data`.

    Raises:
        HamiFormatError: `data` is something else.
    """
    try:
        wire = msgspec.convert(data, _Wire)
    except msgspec.ValidationError as error:
        raise HamiFormatError(f"the devices handed over: {error}") from error
    for word in wire.devices:
        if word not in BY_WORD:
            raise HamiFormatError(f"the devices handed over: there is no vendor {shown(word)}")
    slots = {word: poddevices.decode(text) for word, text in wire.devices.items()}
    return Assignment(slots, wire.indexes, migallocations.decode(wire.mig))


def annotations(assignment: Assignment, node: str, now_s: float) -> dict[str, str]:
    """Return the annotations of a pod that gets `assignment` on `node` and is bound to it.

    HAMi's own scheduler writes the same in two patches; `now_s`: seconds since the epoch.
    """
    time = str(int(now_s))
    written = {
        names.ASSIGNED_NODE: node,
        names.ASSIGNED_TIME: time,
        names.BIND_PHASE: names.BindPhase.ALLOCATING.value,
        names.BIND_TIME: time,
    }
    for vendor in assignment.vendors:
        slots = assignment.devices[vendor.word]
        text = poddevices.encode(slots)
        if vendor.to_allocate_key:
            written[vendor.to_allocate_key] = text
        written[vendor.allocated_key] = text
        facts = extras.Facts(slots, assignment.indexes, assignment.mig, node, now_s)
        for key, extra in vendor.extras:
            value = extras.render(extra, vendor, facts)
            if value:
                written[key] = value
    return written


def written(assignment: Assignment, uid: str, node: str, now_s: float) -> dict[str, str]:
    """Return all annotations that the binder writes: `annotations` and the record."""
    devices = {word: poddevices.encode(slots) for word, slots in assignment.devices.items()}
    mig = migallocations.encode(assignment.mig) if assignment.mig else ""
    record = msgspec.json.encode(_RecordWire(uid, node, devices, mig), order="sorted").decode()
    return {**annotations(assignment, node, now_s), names.DEVICES_RECORD: record}


def read_record(annotations: Mapping[str, str], uid: str) -> tuple[str, Assignment] | None:
    """Return the recorded node and devices of the pod with `uid`; None without its own record."""
    text = annotations.get(names.DEVICES_RECORD)
    if not text:
        return None
    try:
        wire = msgspec.json.decode(text, type=_RecordWire)
        found = from_data({"devices": wire.devices, "mig": wire.mig})
    except (msgspec.DecodeError, RecursionError, HamiFormatError):
        return None
    return (wire.node, found) if uid and wire.pod == uid else None


FORGED: Final = "annotation {} is written by the binder only"
"""The message about a pod that has a `forged_key`."""


def forged_key(annotations: Mapping[str, str], uid: str) -> str:
    """Return an annotation of the protocol that an unbound pod did not get from the binder; "" if
    there is none. Keys written at the binding do not count, because the binding overwrites them.
    """
    if PROTOCOL_KEYS.isdisjoint(annotations) or read_record(annotations, uid) is not None:
        return ""
    return min(PROTOCOL_KEYS & annotations.keys())


def rewritten_key(present: Mapping[str, str], assignment: Assignment, uid: str, node: str) -> str:
    """Return the first annotation that differs from `written`, apart from times; else ""."""
    wanted, later = (written(assignment, uid, node, now_s) for now_s in (0, 1))
    for key in sorted(wanted):
        is_same = present.get(key) == wanted[key]
        if key not in present or (wanted[key] == later[key] and not is_same):
            return key
    return min((PROTOCOL_KEYS & present.keys()) - wanted.keys(), default="")


def _protocol_keys() -> frozenset[str]:
    keys = {names.ASSIGNED_NODE, names.ASSIGNED_TIME, names.BIND_PHASE, names.BIND_TIME}
    for vendor in VENDORS:
        keys.update((vendor.allocated_key, vendor.to_allocate_key))
        keys.update(key for key, extra in vendor.extras if extra is not Extra.TIME_S)
    return frozenset(keys - {""})


PROTOCOL_KEYS: Final = _protocol_keys()
"""All annotations that only a scheduler, a binder or a device plugin writes."""
