"""Users' constraints and preferences for devices: HAMi's annotations on pods.

Read by the scheduler for each new shape of pods and by the binder's admission. An annotation that
cannot be read is an error; HAMi ignores some of them, so that a pod gets other devices than
intended.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from bindery.api.hami import names
from bindery.api.hami.errors import HamiFormatError, boolean, integer, shown
from bindery.api.hami.vendor import Vendor

_WordT = TypeVar("_WordT", bound=StrEnum)


class DevicePolicy(StrEnum):
    """The order and the selection of a node's devices."""

    BINPACK = "binpack"
    SPREAD = "spread"
    NUMA = "numa"
    MUTEX = "mutex"
    """Only unused devices; busy devices come first in the search."""
    TOPOLOGY = "topology-aware"
    """By the links between devices."""


class NodePolicy(StrEnum):
    """The order of nodes."""

    BINPACK = "binpack"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of used shares, cores and memory in a device's score."""

    slot: int = 1
    core: int = 1
    memory: int = 1


@dataclass(frozen=True, slots=True)
class Selection:
    """The devices of one vendor that may be used. Empty: all."""

    use_types: tuple[str, ...] = ()
    avoid_types: tuple[str, ...] = ()
    use_ids: frozenset[str] = frozenset()
    avoid_ids: frozenset[str] = frozenset()

    def takes_type(self, model: str) -> bool:
        """Whether devices of `model` may be used: compares a part of the name, ignoring case."""
        name = model.upper()
        if self.use_types and not any(part in name for part in self.use_types):
            return False
        return not any(part in name for part in self.avoid_types)

    def takes_id(self, uuid: str) -> bool:
        """Whether the device `uuid` may be used."""
        return (not self.use_ids or uuid in self.use_ids) and uuid not in self.avoid_ids


@dataclass(frozen=True, slots=True)
class Wishes:
    """All constraints and preferences of a pod."""

    selections: Mapping[str, Selection] = field(default_factory=dict)
    """Vendor's word -> the selection of its devices."""
    modes: str = ""
    """Text that a device's mode must contain; empty: any mode."""
    binds_numa: bool = False
    """Whether all devices of a container must be at one NUMA node."""
    node_policy: NodePolicy | None = None
    device_policies: tuple[DevicePolicy, ...] = ()
    weights: Weights = Weights()
    mig_profiles: tuple[str, ...] = ()
    """Names of MIG profiles, or their part before the point, the most preferred first."""

    def selection(self, vendor: Vendor) -> Selection:
        """Return the selection of devices of `vendor`."""
        return self.selections.get(vendor.word, _ANY)


_ANY: Final = Selection()
_WEIGHT_NAMES: Final = frozenset({"slot", "core", "memory"})


def read(annotations: Mapping[str, str], vendors: Iterable[Vendor]) -> Wishes:
    """Return the constraints and preferences in `annotations` for devices of `vendors`.

    Raises:
        HamiFormatError: an annotation cannot be read; the message names it.
    """
    node_policy = annotations.get(names.NODE_POLICY, "").strip()
    policies = _parts(annotations.get(names.DEVICE_POLICY, ""))
    bind = annotations.get(names.NUMA_BIND, "").strip()
    weights = annotations.get(names.SCORING_WEIGHTS, "").strip()
    return Wishes(
        selections={vendor.word: _selection(annotations, vendor) for vendor in vendors},
        modes=annotations.get(names.DEVICE_MODE, "").strip(),
        binds_numa=boolean(bind, names.NUMA_BIND) if bind else False,
        node_policy=_word(NodePolicy, node_policy, names.NODE_POLICY) if node_policy else None,
        device_policies=tuple(
            _word(DevicePolicy, policy, names.DEVICE_POLICY) for policy in policies
        ),
        weights=_weights(weights) if weights else Weights(),
        mig_profiles=tuple(dict.fromkeys(_parts(annotations.get(names.MIG_PREFERENCE, "")))),
    )


def keys(vendors: Iterable[Vendor]) -> frozenset[str]:
    """Return the annotations that this module reads."""
    found = {
        *(names.NODE_POLICY, names.DEVICE_POLICY, names.SCORING_WEIGHTS),
        *(names.NUMA_BIND, names.DEVICE_MODE, names.MIG_PREFERENCE),
    }
    for vendor in vendors:
        found.update((vendor.use_types, vendor.avoid_types, *vendor.use_ids, *vendor.avoid_ids))
    return frozenset(found - {""})


def _selection(annotations: Mapping[str, str], vendor: Vendor) -> Selection:
    def parts(*keys: str) -> list[str]:
        return [part for key in keys for part in _parts(annotations.get(key, ""))]

    return Selection(
        tuple(part.upper() for part in parts(vendor.use_types)),
        tuple(part.upper() for part in parts(vendor.avoid_types)),
        frozenset(parts(*vendor.use_ids)),
        frozenset(parts(*vendor.avoid_ids)),
    )


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _word(kind: type[_WordT], text: str, key: str) -> _WordT:
    try:
        return kind(text)
    except ValueError as error:
        known = ", ".join(each.value for each in kind)
        raise HamiFormatError(f"{key} {shown(text)} is none of {known}") from error


def _weights(text: str) -> Weights:
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name.strip() not in _WEIGHT_NAMES or name.strip() in found:
            raise HamiFormatError(f"{names.SCORING_WEIGHTS} {shown(text)}: not {shown(part)}")
        found[name.strip()] = integer(value.strip(), names.SCORING_WEIGHTS)
    if found.keys() != _WEIGHT_NAMES or not any(found.values()):
        raise HamiFormatError(
            f"{names.SCORING_WEIGHTS} {shown(text)}: slot, core and memory, and not all 0"
        )
    return Weights(found["slot"], found["core"], found["memory"])
