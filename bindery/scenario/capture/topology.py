"""The trees of a live cluster, and what its gangs ask of them, as keys of a scenario.

Used by `cluster`; pure. Members that a scenario cannot select are written as the nodes' names by
regular expression; selectors by expressions are left out.
"""

from collections.abc import Sequence

import msgspec

from bindery.api import exclusive, ranks
from bindery.kube.objects.topology import HyperNode, Topology
from bindery.kube.objects.watched import KubeObject, Pod, TopologyConstraint
from bindery.scenario.capture.claims import pruned
from bindery.scenario.capture.nodes import Entry

_LABELS = ranks.LABELS | exclusive.LABELS


def capture_trees(further: Sequence[KubeObject]) -> Entry:
    """Return the keys of a scenario for the Topologies and HyperNodes of `further`."""
    return {
        "topologies": [
            {"name": each.metadata.name, "levels": [level.node_label for level in each.spec.levels]}
            for each in further
            if isinstance(each, Topology) and each.spec.levels
        ],
        "hyperNodes": [_hyper_node(each) for each in further if isinstance(each, HyperNode)],
    }


def capture_constraint(constraint: TopologyConstraint | None) -> object:
    """Return the `topology` of a job or sub-group; None if it has none."""
    if constraint is None:
        return None
    return pruned(msgspec.to_builtins(constraint))


def pod_labels(pod: Pod) -> dict[str, str]:
    """Return the labels by which `pod` has a rank, and others with which it shares a domain."""
    labels = pod.metadata.labels
    return {key: labels[key] for key in sorted(_LABELS & labels.keys())}


def exclusive_annotations(pod: Pod) -> dict[str, str]:
    """Return the annotations by which `pod` asks for an exclusive domain."""
    annotations = pod.metadata.annotations
    return {key: annotations[key] for key in sorted(exclusive.ANNOTATIONS & annotations.keys())}


def _hyper_node(item: HyperNode) -> Entry:
    nodes = [member for member in item.spec.members if member.type == "Node"]
    labels: dict[str, str] = {}
    for member in nodes:
        labels |= member.selector.match_labels if member.selector is not None else {}
    entry: Entry = {
        "name": item.metadata.name,
        "tier": item.spec.tier,
        "members": [member.name for member in nodes if member.name],
        "regexes": [member.regex for member in nodes if member.regex],
        "labels": labels,
        "children": [m.name for m in item.spec.members if m.type == "HyperNode" and m.name],
    }
    return {key: value for key, value in entry.items() if value or key == "tier"}
