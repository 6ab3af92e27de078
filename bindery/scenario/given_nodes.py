"""Events that change a node which is given as an object.

Used by `cluster` and `checks`. Pure. Invariant: fields that an event does not name stay.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from bindery.api.names import GPU_RESOURCE, HOSTNAME_LABEL
from bindery.kube.objects.watched import Condition, Node, Taint
from bindery.scenario.nodes import ScenarioNode

_READY: Final = "Ready"
_AMOUNTS: Final[Mapping[str, str]] = {
    "gpus": GPU_RESOURCE,
    "cpu": "cpu",
    "memory": "memory",
    "pods": "pods",
}
"""Key of an event's node -> resource."""
CHANGEABLE: Final = frozenset(
    {*_AMOUNTS, "resources", "labels", "annotations", "taints", "unschedulable", "ready"}
)
"""The keys that an event may have for such a node, beside its name."""


def changed(node: Node, entry: ScenarioNode) -> Node:
    """Return `node` with the values of the keys of `entry` that are written."""
    written = entry.model_fields_set
    meta, spec, status = node.metadata, node.spec, node.status
    if "labels" in written:
        hostname = {HOSTNAME_LABEL: meta.labels.get(HOSTNAME_LABEL, meta.name)}
        meta = msgspec.structs.replace(meta, labels={**hostname, **entry.labels})
    if "annotations" in written:
        meta = msgspec.structs.replace(meta, annotations=entry.annotations)
    if "taints" in written:
        taints = [Taint(key=t.key, value=t.value, effect=t.effect) for t in entry.taints]
        spec = msgspec.structs.replace(spec, taints=taints)
    if "unschedulable" in written:
        spec = msgspec.structs.replace(spec, unschedulable=entry.unschedulable)
    if "ready" in written:
        others = [each for each in status.conditions or () if each.type != _READY]
        ready = Condition(type=_READY, status="True" if entry.ready else "False")
        status = msgspec.structs.replace(status, conditions=[*others, ready])
    amounts = {
        resource: str(getattr(entry, key)) for key, resource in _AMOUNTS.items() if key in written
    }
    if amounts or "resources" in written:
        known = status.allocatable or {}
        status = msgspec.structs.replace(
            status, allocatable={**known, **entry.resources, **amounts}
        )
    return msgspec.structs.replace(node, metadata=meta, spec=spec, status=status)
