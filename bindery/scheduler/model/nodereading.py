"""What one Node object says by itself: readiness, room, GPUs.

Used by nodes.py, which keeps the columns. Nothing here looks at more than one node.
"""

from collections.abc import Mapping

from bindery.api import quantity
from bindery.api.names import (
    GPU_MEMORY_LABEL,
    GPU_MODEL_LABEL,
    GPU_RESOURCE,
    HAMI_REGISTER_ANNOTATION,
)
from bindery.api.quantity import QuantityError
from bindery.kube.objects import Node

_MOST_DEVICES = 1024
"""More GPUs than any node has: a device plugin that counts slices as devices would fill memory."""
_BYTES_FROM = 2**30


def is_ready(node: Node) -> bool:
    """Return whether the node says that it is ready."""
    return any(
        condition.type == "Ready" and condition.status == "True"
        for condition in node.status.conditions or ()
    )


def shares_by_hami(node: Node) -> bool:
    """Return whether the node's GPUs are shared by HAMi's protocol, which counts them otherwise."""
    return HAMI_REGISTER_ANNOTATION in node.metadata.annotations


def devices_of(node: Node) -> tuple[str | None, int, int]:
    """Return the GPU model of `node`, how many devices it has, and MiB of each (0: not known)."""
    model = node.metadata.labels.get(GPU_MODEL_LABEL)
    if shares_by_hami(node):
        return model, 0, 0
    try:
        offered = (node.status.allocatable or {}).get(GPU_RESOURCE, "0")
        amount = quantity.parse(offered, GPU_RESOURCE)
    except QuantityError:  # the node cannot be used at all; `allocatable_of` says so
        amount = 0
    count = min(amount // quantity.scale(GPU_RESOURCE), _MOST_DEVICES)
    text = node.metadata.labels.get(GPU_MEMORY_LABEL, "")
    memory = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
    # Some write bytes: no device has so many MiB (as KAI-Scheduler does).
    return model, count, memory // 2**20 if memory >= _BYTES_FROM else memory


def allocatable_of(node: Node) -> Mapping[str, int]:
    """Return what `node` offers to pods, by resource.

    Raises:
        QuantityError: a quantity does not parse.
    """
    amounts: dict[str, int] = {}
    for name, text in (node.status.allocatable or {}).items():
        try:
            amounts[name] = quantity.parse(text, name)
        except QuantityError as error:
            raise QuantityError(f"allocatable {name}: {error}") from error
    return amounts


def decides_filters(old: Node, new: Node) -> bool:
    """Return whether `new` differs from `old` in what static filters and scores read."""
    return (
        old.metadata.labels != new.metadata.labels
        or old.spec != new.spec
        or old.status.allocatable != new.status.allocatable
        or is_ready(old) != is_ready(new)
        or shares_by_hami(old) != shares_by_hami(new)
    )
