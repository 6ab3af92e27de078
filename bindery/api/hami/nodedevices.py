"""The devices of a node, as device plugins register them in annotations.

Read by the scheduler's cache for every node, written by device plugins (here: tests and hollow
nodes). The form is JSON since v2.8; before, and for some vendors still, a list of comma separated
fields. Invariant: a text that cannot be read raises HamiFormatError, and the node offers none of
these devices.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bindery.api.hami import gojson
from bindery.api.hami.errors import INT32_MAX, HamiFormatError, boolean, integer, shown
from bindery.api.hami.names import DeviceModeWord

Count = Annotated[int, Meta(ge=0, le=INT32_MAX)]

_FIELDS: Final = 9
_OLD_FIELDS: Final = 7


class MigPlacement(msgspec.Struct, frozen=True, order=True):
    """The slices of a card that a MIG instance takes."""

    start: Count
    size: Annotated[int, Meta(ge=1, le=INT32_MAX)]

    def overlaps(self, other: "MigPlacement") -> bool:
        """Whether both take a common slice."""
        return self.start < other.start + other.size and other.start < self.start + self.size


class MigProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of MIG instance that a card supports."""

    name: str
    memory_mib: Count = msgspec.field(name="memoryMB")
    cores: Count = msgspec.field(name="core", default=0)
    slice_count: Count = msgspec.field(name="sliceCount", default=0)
    placements: tuple[MigPlacement, ...] = ()


class NodeDevice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One card. Order and omission of fields are as in HAMi's `DeviceInfo`."""

    id: str = ""
    index: Count = 0
    count: Count = 0
    """Number of containers that may share the card."""
    memory_mib: Count = msgspec.field(name="devmem", default=0)
    cores: Count = msgspec.field(name="devcore", default=0)
    """Per cent, 100 unless scaled; some vendors use other units."""
    type: str = ""
    """The model."""
    numa: int = 0
    mode: str = ""
    mig_profiles: tuple[MigProfile, ...] = msgspec.field(name="migProfiles", default=())
    healthy: bool = msgspec.field(name="health", default=False)


class PairScore(msgspec.Struct, frozen=True, kw_only=True):
    """The quality of a card's links: UUID of another card -> score, higher is closer."""

    uuid: str = ""
    score: dict[str, int] = {}


class MetaxDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One card in the register of Metax's plugin."""

    uuid: str
    model: str = ""
    total_dev_count: Count = 0
    total_compute: Count = 0
    total_memory_mib: Count = msgspec.field(name="totalVRam", default=0)
    numa: int = 0
    healthy: bool = False


class DrsDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One card of Enflame that is divided into slices."""

    index: str
    minor: str = ""
    capacity: int | str = 0


class DrsCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """The register of Enflame's plugin: cards, and the id of each slice profile."""

    devices: tuple[DrsDevice, ...] = ()
    profiles: dict[str, str] = {}


def decode(text: str) -> tuple[NodeDevice, ...]:
    """Read a register annotation in either form.

    Raises:
        HamiFormatError: `text` is malformed, or contains a device without an id or twice.
    """
    is_json = text.lstrip()[:1] in ("[", "{", "n")
    return _checked(decode_json(text) if is_json else decode_fields(text))


def decode_json(text: str) -> tuple[NodeDevice, ...]:
    """Read the form of v2.8 and later, in which an absent field is zero: unhealthy.

    Raises:
        HamiFormatError: it is malformed.
    """
    return gojson.decode_list(text, NodeDevice, "registered devices")


def encode_json(devices: Sequence[NodeDevice]) -> str:
    """Return the JSON form."""
    return gojson.encode(list(devices))


def decode_fields(text: str) -> tuple[NodeDevice, ...]:
    """Read `id,count,memory,cores,type,numa,health,index,mode:…`; the last two came with v2.5.

    Raises:
        HamiFormatError: it is malformed.
    """
    if ":" not in text:
        raise HamiFormatError(f"registered devices {shown(text)} have no end mark")
    return tuple(_decode_one(part) for part in text.split(":") if part)


def _decode_one(text: str) -> NodeDevice:
    fields = text.split(",")
    if len(fields) not in (_OLD_FIELDS, _FIELDS):
        raise HamiFormatError(f"registered device {shown(text)} has {len(fields)} fields")
    index, mode = fields[7:] if len(fields) == _FIELDS else ("0", DeviceModeWord.HAMI_CORE)
    return NodeDevice(
        id=fields[0],
        index=integer(index, "index"),
        count=integer(fields[1], "count"),
        memory_mib=integer(fields[2], "memory"),
        cores=integer(fields[3], "cores"),
        type=fields[4],
        numa=integer(fields[5], "NUMA node", least=-INT32_MAX),
        healthy=boolean(fields[6], "health"),
        mode=str(mode),
    )


def decode_metax(text: str, kind: str) -> tuple[NodeDevice, ...]:
    """Read the register of Metax's sGPU plugin; `kind` is the vendor's word.

    Raises:
        HamiFormatError: it is malformed.
    """
    cards = gojson.decode_list(text, MetaxDevice, "registered devices")
    return _checked(
        tuple(
            NodeDevice(
                id=card.uuid,
                index=index,
                count=card.total_dev_count,
                memory_mib=card.total_memory_mib,
                cores=card.total_compute,
                type=kind,
                numa=card.numa,
                healthy=card.healthy,
            )
            for index, card in enumerate(cards)
        )
    )


def decode_drs(text: str, node: str, kind: str) -> tuple[NodeDevice, ...]:
    """Read the register of Enflame's DRS plugin: cards of `capacity` slices.

    Raises:
        HamiFormatError: it is malformed.
    """
    found = gojson.decode(text, DrsCapacity, "registered devices")
    return _checked(
        tuple(
            NodeDevice(
                id=f"{node}-enflame-{card.index}",
                index=integer(card.index, "index"),
                count=integer(str(card.capacity), "capacity"),
                memory_mib=100,
                cores=100,
                type=kind,
                healthy=True,
            )
            for card in found.devices
        )
    )


def decode_pair_scores(text: str) -> Mapping[str, Mapping[str, int]]:
    """Return UUID -> other UUID -> score.

    Raises:
        HamiFormatError: it is malformed.
    """
    pairs = gojson.decode_list(text, PairScore, "pair scores")
    return {pair.uuid: pair.score for pair in pairs}


def encode_pair_scores(pairs: Sequence[PairScore]) -> str:
    """Return the text that `decode_pair_scores` reads."""
    return gojson.encode(list(pairs))


def decode_cordon(text: str) -> frozenset[str]:
    """Return the UUIDs of a cordon annotation; surrounding blanks are ignored."""
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _checked(devices: tuple[NodeDevice, ...]) -> tuple[NodeDevice, ...]:
    seen: set[str] = set()
    for device in devices:
        if not device.id:
            raise HamiFormatError("a registered device has no id")
        if device.id in seen:
            raise HamiFormatError(f"device {shown(device.id)} is registered twice")
        if frozenset(":;,").intersection(device.id):
            raise HamiFormatError(f"device id {shown(device.id)} cannot be written in a pod")
        seen.add(device.id)
    return devices
