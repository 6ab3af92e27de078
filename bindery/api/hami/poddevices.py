"""The devices of a pod in HAMi's form: `UUID,TYPE,MEMORY,CORES:` for a device, `;` after a
container.

Read from `*-devices-allocated` by the scheduler's ledger, written by the binder under that key and
`*-devices-to-allocate`. Slots are positional: init containers first, then the others; a container
without devices has an empty slot. Invariant: `decode(encode(devices)) == devices`.
"""

from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bindery.api.hami.errors import HamiFormatError, integer, shown

_DEVICE_END: Final = ":"
_SLOT_END: Final = ";"
_FIELD_END: Final = ","
_FIELDS: Final = 4
_RESERVED: Final = frozenset(":;,")


@dataclass(frozen=True, slots=True)
class ContainerDevice:
    """The share of one device that one container gets."""

    uuid: str
    """UUID in the device plugin's form. Versions 2.7 to 2.9 append the instance: `GPU-a[0-1]`."""
    type: str
    """The vendor's word; AMD: the registered model."""
    memory_mib: int
    cores: int
    """Per cent of the device, or the vendor's own unit."""

    @property
    def device(self) -> str:
        """The UUID of the whole device, without an appended MIG instance."""
        return self.uuid.partition("[")[0] if self.uuid.endswith("]") else self.uuid


Slot = tuple[ContainerDevice, ...]
"""The devices of one container."""
Slots = tuple[Slot, ...]
"""The containers of a pod, init containers first."""


def encode(slots: Slots) -> str:
    """Return the text of `slots`, each device and each slot with its end mark.

    Raises:
        HamiFormatError: a UUID or type is empty or contains a mark.
    """
    return "".join("".join(_encode_device(device) for device in slot) + _SLOT_END for slot in slots)


def _encode_device(device: ContainerDevice) -> str:
    for text, field in ((device.uuid, "device UUID"), (device.type, "device type")):
        if not text or _RESERVED.intersection(text):
            raise HamiFormatError(f"{field} {shown(text)} cannot be written")
    return f"{device.uuid},{device.type},{device.memory_mib},{device.cores}{_DEVICE_END}"


def decode(text: str) -> Slots:
    """Return the slots of `text`, as any version from 2.4 on may have written it.

    The last end mark closes a slot and opens none; it may be missing. Text without a comma, and a
    device without a UUID (`,,0,0`, the filler before 2.6), are empty. Fields after the fourth are
    ignored.

    Raises:
        HamiFormatError: a device has too few fields, no type, or invalid numbers.
    """
    parts = text.split(_SLOT_END)
    if not parts[-1]:
        parts.pop()
    return tuple(_decode_slot(part) for part in parts)


def _decode_slot(text: str) -> Slot:
    if _FIELD_END not in text:
        return ()
    found = (_decode_device(part) for part in text.split(_DEVICE_END) if part)
    return tuple(device for device in found if device is not None)


def _decode_device(text: str) -> ContainerDevice | None:
    fields = text.split(_FIELD_END)
    if len(fields) < _FIELDS:
        raise HamiFormatError(f"device {shown(text)} has {len(fields)} of {_FIELDS} fields")
    uuid, kind, memory, cores = fields[:_FIELDS]
    if not uuid:
        return None
    if not kind:
        raise HamiFormatError(f"device {shown(text)} has no type")
    return ContainerDevice(uuid, kind, integer(memory, "memory"), integer(cores, "cores"))


def erase_first(text: str) -> str:
    """Return `text` without the devices of its first slot that has some.

    HAMi's device plugin writes this after each container; with one empty slot more, as it reads
    the end of the last slot as the beginning of another.

    Raises:
        HamiFormatError: `text` cannot be decoded.
    """
    slots = text.split(_SLOT_END)
    first = next((index for index, slot in enumerate(slots) if _decode_slot(slot)), None)
    if first is not None:
        slots[first] = ""
    return _SLOT_END.join((*slots, ""))


def align(slots: Slots, counts: Sequence[int]) -> Slots:
    """Return `slots`, one for each container; `counts`: how many devices each requests.

    Surplus empty slots at the end are dropped. Version 2.10.0 drops empty slots at the beginning
    (HAMi issue 2899): if there are fewer slots than containers, or their sizes do not match, slots
    with devices are given in order to containers that request as many.

    Raises:
        HamiFormatError: the devices do not match the requests of the containers.
    """
    padded = slots[: len(counts)] + ((),) * (len(counts) - len(slots))
    if not any(slots[len(counts) :]) and all(
        len(slot) == count for slot, count in zip(padded, counts, strict=True)
    ):
        return padded
    waiting = [slot for slot in slots if slot]
    aligned: list[Slot] = []
    for count in counts:
        takes = bool(count and waiting and len(waiting[0]) == count)
        aligned.append(waiting.pop(0) if takes else ())
    if waiting:
        sizes = [len(slot) for slot in slots if slot]
        raise HamiFormatError(f"slots of {sizes} devices for containers that ask for {counts}")
    return tuple(aligned)


@dataclass(frozen=True, slots=True)
class Holding:
    """The amounts that a pod holds of one device over its life."""

    shares: int
    memory_mib: int
    cores: int

    def __add__(self, other: "Holding") -> "Holding":
        return Holding(
            self.shares + other.shares, self.memory_mib + other.memory_mib, self.cores + other.cores
        )

    def __sub__(self, other: "Holding") -> "Holding":
        return Holding(
            self.shares - other.shares, self.memory_mib - other.memory_mib, self.cores - other.cores
        )

    def most(self, other: "Holding") -> "Holding":
        """Return the maximum of both in each field."""
        return Holding(
            max(self.shares, other.shares),
            max(self.memory_mib, other.memory_mib),
            max(self.cores, other.cores),
        )


NOTHING: Final = Holding(0, 0, 0)


def collapse(slots: Slots, passing: Container[int] = ()) -> dict[str, Holding]:
    """Return device UUID -> amounts that the pod holds.

    The slots at the indexes `passing` belong to init containers that end before the others begin.
    Of each device, the larger of two amounts counts: the maximum of these slots, and the sum of the
    other slots (HAMi v2.10.0, as in KEP-753 for other resources; unlike in HAMi, sidecars count
    with the containers beside which they run).
    """
    sums: defaultdict[str, Holding] = defaultdict(lambda: NOTHING)
    for index, slot in enumerate(slots):
        if index not in passing:
            for uuid, holding in _of_slot(slot).items():
                sums[uuid] += holding
    for index, slot in enumerate(slots):
        if index in passing:
            for uuid, holding in _of_slot(slot).items():
                # A container takes one share of a device, even if it lists the device several
                # times.
                sums[uuid] = sums[uuid].most(replace(holding, shares=1))
    return dict(sums)


def _of_slot(slot: Slot) -> dict[str, Holding]:
    sums: defaultdict[str, Holding] = defaultdict(lambda: NOTHING)
    for device in slot:
        sums[device.device] += Holding(1, device.memory_mib, device.cores)
    return sums
