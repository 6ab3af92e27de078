"""The trees of a scenario: their Kubernetes objects, and the domain of a node for expectations.

Used by `creation`, `runner` and `expect`. Pure.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from bindery.kube.objects.topology import (
    HyperNode,
    HyperNodeSpec,
    LabelSelector,
    Member,
    Topology,
    TopologyLevel,
    TopologySpec,
)
from bindery.kube.objects.watched import KubeObject, Meta
from bindery.scenario import nodes

_TIER = "tier"
"""Prefix of the names of HyperNode levels; the number follows."""


def topology_object(entry: nodes.Topology) -> Topology:
    """Return the Topology of `entry`."""
    levels = [TopologyLevel(node_label=label) for label in entry.levels]
    return Topology(metadata=Meta(name=entry.name), spec=TopologySpec(levels=levels))


def hyper_node_object(entry: nodes.HyperNode) -> HyperNode:
    """Return the HyperNode of `entry`."""
    members = [Member(name=name) for name in entry.members]
    members += [Member(regex=pattern) for pattern in entry.regexes]
    if entry.labels:
        members.append(Member(selector=LabelSelector(match_labels=entry.labels)))
    members += [Member(type="HyperNode", name=name) for name in entry.children]
    return HyperNode(
        metadata=Meta(name=entry.name), spec=HyperNodeSpec(tier=entry.tier, members=members)
    )


class Domains:
    """The domains of nodes at any level, by their names from the top down."""

    def __init__(self, trees: Iterable[KubeObject] = ()) -> None:
        """`trees`: the Topologies and HyperNodes among them count."""
        trees = list(trees)
        self._topologies = [tree for tree in trees if isinstance(tree, Topology)]
        self._hyper_nodes = [tree for tree in trees if isinstance(tree, HyperNode)]

    def of(self, node: str, labels: Mapping[str, str], level: str) -> tuple[str, ...]:
        """Return the domain of `node` with `labels` at `level`."""
        tier = level.removeprefix(_TIER)
        if self._hyper_nodes and level.startswith(_TIER) and tier.isdigit():
            above = self._above(node, labels)
            names = [each.metadata.name for each in above if each.spec.tier == int(tier)]
            return tuple(names) or (f"{node} has no {level}",)
        return tuple(labels.get(label, f"{node} has no {label}") for label in self._path(level))

    def _path(self, level: str) -> list[str]:
        for topology in self._topologies:
            labels = [each.node_label for each in topology.spec.levels]
            if level in labels:
                return labels[: labels.index(level) + 1]
        return [level]

    def _above(self, node: str, labels: Mapping[str, str]) -> Iterator[HyperNode]:
        """Yield the HyperNodes that contain `node`."""
        found: set[str] = set()
        size = -1
        while size != len(found):
            size = len(found)
            found |= {
                each.metadata.name
                for each in self._hyper_nodes
                if any(_is_in(node, labels, found, member) for member in each.spec.members)
            }
        return (each for each in self._hyper_nodes if each.metadata.name in found)


def _is_in(node: str, labels: Mapping[str, str], found: Collection[str], member: Member) -> bool:
    """Return whether `node`, which is in the HyperNodes `found`, is in `member`."""
    if member.type == "HyperNode":
        return member.name in found
    if member.regex and re.search(member.regex, node):
        return True
    wanted = member.selector.match_labels if member.selector is not None else {}
    return member.name == node or (bool(wanted) and wanted.items() <= labels.items())
