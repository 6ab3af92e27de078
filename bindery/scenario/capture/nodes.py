"""Live nodes as the `nodes` of a scenario.

Used by `cluster`; pure. Nodes with equal entries whose names count from 0 become one entry with
`count`; every other node is an entry of its own.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from bindery.api import quantity
from bindery.api.names import GPU_MEMORY_LABEL, GPU_MODEL_LABEL, GPU_RESOURCE, HOSTNAME_LABEL
from bindery.kube.objects.declaredfeatures import FEATURES
from bindery.kube.objects.watched import Node
from bindery.scenario.capture.hami import node_annotations
from bindery.scheduler.model.images import normalized

Entry = dict[str, Any]
"""A part of a scenario as it is written to YAML."""

_NUMBERED: Final = re.compile(r"(.*?)(0|[1-9]\d*)")
_OWN_KEYS: Final = {"cpu": "cpu", "memory": "memory", "pods": "pods", GPU_RESOURCE: "gpus"}


def capture_nodes(
    nodes: Iterable[Node],
    taken: Mapping[str, Mapping[str, int]],
    images: Collection[str] = (),
    zones: Mapping[str, Entry] = MappingProxyType({}),
) -> list[Entry]:
    """Return the entries of `nodes`, equal ones together where their names count from 0.

    `taken`: node name -> resource -> amount that is used by what the scenario does not show.
    `images`: the images that pods of the scenario use.
    `zones`: node name -> its key `numa`.
    """
    by_shape: defaultdict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    entries: dict[str, Entry] = {}
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        name = node.metadata.name
        entries[name] = _entry(node, taken.get(name, {}), images)
        if name in zones:
            entries[name]["numa"] = zones[name]
        numbered = _NUMBERED.fullmatch(name)
        if numbered:
            shape = json.dumps(entries[name], sort_keys=True)
            by_shape[numbered[1], shape][int(numbered[2])] = name
    captured: list[Entry] = []
    for (prefix, _), names in by_shape.items():
        if len(names) > 1 and set(names) == set(range(len(names))):
            entry = entries[names[0]]
            captured.append({"name": f"{prefix}{{i}}", "count": len(names), **entry})
            for name in names.values():
                del entries[name]
    return captured + [{"name": name, **entry} for name, entry in entries.items()]


def amount_text(amount: int, resource: str) -> str:
    """Return `amount`, in Bindery's units, as an exact Kubernetes quantity."""
    if quantity.scale(resource) == 1:
        return str(amount)
    whole, rest = divmod(amount, 1000)
    return f"{amount}m" if rest else str(whole)


def _entry(node: Node, taken: Mapping[str, int], images: Collection[str]) -> Entry:
    labels = dict(node.metadata.labels)
    if labels.get(HOSTNAME_LABEL) == node.metadata.name:
        del labels[HOSTNAME_LABEL]
    entry: Entry = {"cpu": "0", "memory": "0", "pods": 0}
    resources: dict[str, str] = {}
    for resource, text in (node.status.allocatable or {}).items():
        amount = max(0, quantity.parse(text, resource) - taken.get(resource, 0))
        key = _OWN_KEYS.get(resource)
        if key in ("pods", "gpus"):
            entry[key] = amount // quantity.scale(resource)
        elif key is not None:
            entry[key] = amount_text(amount, resource)
        elif amount:
            resources[resource] = amount_text(amount, resource)
    if GPU_MODEL_LABEL in labels:
        entry["gpuModel"] = labels.pop(GPU_MODEL_LABEL)
    if labels.get(GPU_MEMORY_LABEL, "").isdecimal():
        entry["gpuMemory"] = int(labels.pop(GPU_MEMORY_LABEL))
    taints = [
        {"key": taint.key, "value": taint.value, "effect": taint.effect}
        for taint in node.spec.taints or ()
    ]
    is_ready = any(
        item.type == "Ready" and item.status == "True" for item in node.status.conditions or ()
    )
    extras: Entry = {
        "resources": resources,
        "labels": labels,
        "annotations": node_annotations(node),
        "taints": taints,
        "images": {
            name: str(image.size_bytes)
            for image in node.status.images or ()
            for name in map(normalized, image.names)
            if name in images
        },
        # Others affect no placement.
        "declaredFeatures": [
            name for name in node.status.declared_features or () if name in FEATURES
        ],
        "unschedulable": node.spec.unschedulable,
    }
    entry |= {key: value for key, value in extras.items() if value}
    return entry if is_ready else {**entry, "ready": False}
