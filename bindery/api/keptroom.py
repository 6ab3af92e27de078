"""The record on pods of the nodes on which room was kept for later stages of their gang.

The scheduler passes the nodes to the binder in `pluginData` of some pods of an earlier stage; the
binder records them on these pods at the binding (`names.KEPT_ROOM_ANNOTATION`). So a scheduler that
starts later keeps the room on the same nodes. Pure.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from bindery.api.states import MOST_GANG_PODS

PLUGIN_DATA: Final = "stages"
"""The key in `pluginData`. No plugin is needed to record it."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_GANG_PODS)]


class KeptRoom(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The nodes with room for later stages at the time of a pod's planning."""

    rooms: dict[str, dict[str, Count]]
    """Sub-group of a later stage -> node -> number of its pods."""
    pod: str = ""
    """The UID of the pod, in the record on the pod: annotations are copied from pod to pod."""

    def as_data(self) -> dict[str, Any]:
        """Return the JSON object for `pluginData`."""
        return {"rooms": self.rooms}

    def record(self, pod_uid: str) -> str:
        """Return the value of the annotation for the pod with `pod_uid`."""
        return msgspec.json.encode(msgspec.structs.replace(self, pod=pod_uid)).decode()


def from_data(data: object) -> KeptRoom | None:
    """Return the rooms in `pluginData`, which any client may write; None if invalid."""
    if not isinstance(data, Mapping):
        return None
    try:
        return msgspec.convert(dict(data), KeptRoom)
    except msgspec.ValidationError:
        return None


def from_record(text: str | None, pod_uid: str) -> KeptRoom | None:
    """Return the recorded rooms; None if `text` is missing, broken or of another pod."""
    if not text:
        return None
    try:
        found = msgspec.json.decode(text, type=KeptRoom)
    except msgspec.DecodeError:
        return None
    return found if found.pod == pod_uid else None
