"""The NUMA zones that a pod is expected to get on its node.

The scheduler predicts the zones and passes them to the binder in `pluginData` of the BindRequest;
the binder records them on the pod at the binding (`names.NUMA_ZONES_ANNOTATION`). From the record,
a scheduler later knows the resources that the end of the pod frees. Pure.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

ORDER: Final = "order"
"""The key of `NumaPlacement.order` in `pluginData`."""
PLUGIN: Final = "numa"
"""Name of the plugins that predict (scheduler) and record (binder), and key of the data."""


class NumaPlacement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Zones, by the numbers of NUMA nodes."""

    zones: list[int]
    """The zones from which the pod gets resources, sorted."""
    held: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    """Zone -> resource -> amount exclusively for the pod: whole CPUs, bytes, devices."""
    together: list[list[int]] | None = None
    """Groups of zones whose memory it uses together. None: all zones of its memory, as in records
    that earlier versions have written."""
    pod: str = ""
    """The UID of the pod, in the record on the pod: annotations are copied from pod to pod."""
    order: int = 0
    """The place of the prediction in the scheduler's plan; not in the record on the pod."""

    def as_data(self) -> dict[str, Any]:
        """Return the JSON object for `pluginData`."""
        data: dict[str, Any] = {"zones": self.zones, "held": self.held}
        return data if self.together is None else {**data, "together": self.together}

    def record(self, pod_uid: str) -> str:
        """Return the value of the annotation for the pod with `pod_uid`."""
        return msgspec.json.encode(msgspec.structs.replace(self, pod=pod_uid, order=0)).decode()


def from_data(data: Mapping[str, Any]) -> NumaPlacement | None:
    """Return the placement in `pluginData`, which any client may write; None if invalid."""
    try:
        found = msgspec.convert(dict(data), NumaPlacement)
    except msgspec.ValidationError:
        return None
    return found if _is_sane(found) else None


def from_record(text: str | None, pod_uid: str) -> NumaPlacement | None:
    """Return the recorded placement; None if `text` is missing, broken or of another pod."""
    if not text:
        return None
    try:
        found = msgspec.json.decode(text, type=NumaPlacement)
    except msgspec.DecodeError:
        return None
    return found if found.pod == pod_uid and _is_sane(found) else None


def zones_text(zones: list[int]) -> str:
    """Return `zones` for people: "NUMA zone 0", "NUMA zones 0 and 1", or "no NUMA zone"."""
    if not zones:
        return "no NUMA zone"
    if len(zones) == 1:
        return f"NUMA zone {zones[0]}"
    return f"NUMA zones {', '.join(map(str, zones[:-1]))} and {zones[-1]}"


def _is_sane(placement: NumaPlacement) -> bool:
    amounts = [amount for held in placement.held.values() for amount in held.values()]
    groups = placement.together or ()
    numbers = [*placement.zones, *(zone for group in groups for zone in group)]
    names = [*map(str, numbers), *placement.held]
    return all(amount >= 0 for amount in amounts) and all(name.isdecimal() for name in names)
