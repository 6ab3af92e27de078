"""Reading one Node object: readiness, allocatable resources, GPUs.

Used by nodes.py, which has the columns. Each function reads only one node.
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
from bindery.kube.objects.watched import Node, Pod

_MOST_DEVICES = 1024
"""More GPUs than any node has. Device plugins that count slices as devices report far more."""
_BYTES_FROM = 2**30


def is_ready(item: Node | Pod) -> bool:
    """Return whether the node or pod has the condition Ready=True."""
    return any(
        condition.type == "Ready" and condition.status == "True"
        for condition in item.status.conditions or ()
    )


def not_ready_text(node: Node) -> str:
    """Return since when the node is not ready; empty if it is."""
    if is_ready(node):
        return ""
    for condition in node.status.conditions or ():
        if condition.type == "Ready":
            since = condition.last_transition_time
            return f"has not been ready since {since}" if since else "is not ready"
    return "has never been ready"


def declares(node: Node, feature: str) -> bool:
    """Return whether the node's kubelet declares `feature`."""
    return feature in (node.status.declared_features or ())


def shares_by_hami(node: Node) -> bool:
    """Return whether HAMi shares the node's GPUs; it counts them differently."""
    return HAMI_REGISTER_ANNOTATION in node.metadata.annotations


def devices_of(node: Node) -> tuple[str | None, int, int]:
    """Return the GPU model of `node`, its number of devices, and MiB per device (0: not known)."""
    model = node.metadata.labels.get(GPU_MODEL_LABEL)
    if shares_by_hami(node):
        return model, 0, 0
    try:
        offered = (node.status.allocatable or {}).get(GPU_RESOURCE, "0")
        amount = quantity.parse(offered, GPU_RESOURCE)
    except QuantityError:  # `allocatable_of` reports it; the node is not used at all
        amount = 0
    count = min(amount // quantity.scale(GPU_RESOURCE), _MOST_DEVICES)
    text = node.metadata.labels.get(GPU_MEMORY_LABEL, "")
    # At most 18 digits, which fit into int64.
    memory = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
    # Some installations write bytes. No device has that many MiB (KAI-Scheduler does the same).
    return model, count, memory // 2**20 if memory >= _BYTES_FROM else memory


def offers(node: Node, resource: str) -> bool:
    """Return whether `node` offers any of `resource`."""
    try:
        return quantity.parse((node.status.allocatable or {}).get(resource, "0"), resource) > 0
    except QuantityError:  # `allocatable_of` reports it; the node is not used at all
        return False


def allocatable_of(node: Node) -> Mapping[str, int]:
    """Return the allocatable amounts of `node` by resource; raises QuantityError."""
    amounts: dict[str, int] = {}
    for name, text in (node.status.allocatable or {}).items():
        try:
            amounts[name] = quantity.parse(text, name)
        except QuantityError as error:
            raise QuantityError(f"allocatable {name}: {error}") from error
    return amounts


def decides_filters(old: Node, new: Node) -> bool:
    """Return whether `new` differs from `old` in a field that cached filters or scores read."""
    return (
        old.metadata.labels != new.metadata.labels
        or old.spec != new.spec
        or old.status.allocatable != new.status.allocatable
        or old.status.declared_features != new.status.declared_features
        or is_ready(old) != is_ready(new)
        or shares_by_hami(old) != shares_by_hami(new)
    )
