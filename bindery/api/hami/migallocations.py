"""The MIG instances of a pod's containers, as JSON on the pod.

Written by the binder from the scheduler's choice; completed by the device plugin; read by the
ledger. Invariant: a device of a container has at most one instance.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from bindery.api.hami import gojson
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.nodedevices import Count, MigPlacement

_Text = Annotated[str, Meta(min_length=1)]


class MigAllocation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One MIG instance of one container."""

    container_index: Count
    device_index: Count
    """Index among the container's devices."""
    gpu_uuid: _Text = msgspec.field(name="gpuUUID")
    profile: _Text
    placement: MigPlacement
    mig_uuid: str = msgspec.field(name="migUUID", default="")
    """This and the next two fields are written by the device plugin, together."""
    gpu_instance_id: Count | None = msgspec.field(name="gpuInstanceID", default=None)
    compute_instance_id: Count | None = msgspec.field(name="computeInstanceID", default=None)


def encode(allocations: Sequence[MigAllocation]) -> str:
    """Return the text of the annotation."""
    return gojson.encode(list(allocations))


def decode(text: str) -> tuple[MigAllocation, ...]:
    """Read the annotation; an empty text has no instances.

    Raises:
        HamiFormatError: `text` is malformed, contains a device twice or is partly completed.
    """
    if not text:
        return ()
    allocations = gojson.decode_list(text, MigAllocation, "MIG allocations")
    seen: set[tuple[int, int]] = set()
    for each in allocations:
        place = (each.container_index, each.device_index)
        if place in seen:
            raise HamiFormatError(f"MIG allocations: device {place[1]} of slot {place[0]} twice")
        seen.add(place)
        known = [bool(each.mig_uuid), each.gpu_instance_id is not None]
        known.append(each.compute_instance_id is not None)
        if any(known) != all(known):
            raise HamiFormatError(f"MIG allocations: instance at {place} is partly completed")
    return allocations
