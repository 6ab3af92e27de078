"""The trees of a scenario: their Kubernetes objects, and the domain of a node for expectations.

Used by `cluster` and `expect`. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from bindery.scenario.format import Scenario

_TIER = "tier"
"""What the names of HyperNode levels begin with, before the number."""


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


def with_given(
    scenario: "Scenario", given: Iterable[KubeObject]
) -> tuple[list[nodes.Topology], list[nodes.HyperNode]]:
    """Return the trees of `scenario` and those among its `given` objects, as entries."""
    trees, hyper_nodes = list(scenario.topologies), list(scenario.hyper_nodes)
    for item in given:
        if isinstance(item, Topology):
            levels = [level.node_label for level in item.spec.levels]
            trees.append(nodes.Topology(name=item.metadata.name, levels=tuple(levels)))
        elif isinstance(item, HyperNode):
            hyper_nodes.append(_entry(item))
    return trees, hyper_nodes


def _entry(item: HyperNode) -> nodes.HyperNode:
    members = item.spec.members
    of_nodes = [member for member in members if member.type != "HyperNode"]
    selected = [member.selector.match_labels for member in of_nodes if member.selector]
    return nodes.HyperNode(
        name=item.metadata.name,
        tier=item.spec.tier,
        members=tuple(member.name for member in of_nodes if member.name),
        regexes=tuple(member.regex for member in of_nodes if member.regex),
        labels=selected[0] if selected else {},
        children=tuple(m.name for m in members if m.type == "HyperNode" and m.name),
    )


class Domains:
    """The domains of nodes at any level, by their names from the top down."""

    def __init__(
        self, topologies: Sequence[nodes.Topology] = (), hyper_nodes: Sequence[nodes.HyperNode] = ()
    ) -> None:
        self._topologies = topologies
        self._hyper_nodes = hyper_nodes

    def of(self, node: str, labels: Mapping[str, str], level: str) -> tuple[str, ...]:
        """Return the domain of `node` with `labels` at `level`."""
        tier = level.removeprefix(_TIER)
        if self._hyper_nodes and level.startswith(_TIER) and tier.isdigit():
            names = [each.name for each in self._above(node, labels) if each.tier == int(tier)]
            return tuple(names) or (f"{node} has no {level}",)
        return tuple(labels.get(label, f"{node} has no {label}") for label in self._path(level))

    def _path(self, level: str) -> tuple[str, ...]:
        for topology in self._topologies:
            if level in topology.levels:
                return topology.levels[: topology.levels.index(level) + 1]
        return (level,)

    def _above(self, node: str, labels: Mapping[str, str]) -> Iterator[nodes.HyperNode]:
        """Yield the HyperNodes that contain `node`."""
        found = {each.name for each in self._hyper_nodes if each.takes(node, labels)}
        size = -1
        while size != len(found):
            size = len(found)
            found |= {e.name for e in self._hyper_nodes if not found.isdisjoint(e.children)}
        return (each for each in self._hyper_nodes if each.name in found)
