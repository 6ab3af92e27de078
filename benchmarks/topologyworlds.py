"""The clusters on which planning with topology is measured, as the scheduler's cache takes them.

Used by `room`. All follow from the number of nodes alone; each defines what a right cycle does.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from benchmarks.roomworlds import (
    GPUS,
    Outcome,
    World,
    gang,
    node,
    node_name,
    pod,
    queue,
)
from bindery.api.names import SUB_GROUP_LABEL
from bindery.kube.objects.podgroups import SubGroup, TopologyConstraint
from bindery.kube.objects.topology import (
    HyperNode,
    HyperNodeSpec,
    Member,
    Topology,
    TopologyLevel,
    TopologySpec,
)
from bindery.kube.objects.watched import KubeObject, Meta

_RACK: Final = "topology.example.com/rack"
_BLOCK: Final = "topology.example.com/block"
_RACK_NODES: Final = 64
_LEAF_NODES: Final = 10
_HOST_TIER: Final = 1
_LEAF_TIER: Final = 2
_SPINE_TIER: Final = 3
_SPINE_NODES: Final = 100


def gang_in_one_rack(nodes: int) -> World:
    """Let a gang of 512 pods wait that needs a rack of 64 nodes; other racks hold a pod each."""
    of_rack = min(_RACK_NODES, nodes)
    size, racks = of_rack * GPUS, nodes // of_rack
    busy = [pod(f"runs-{at:04}", 1, queue="all", node=at * of_rack) for at in range(racks - 1)]
    asked = TopologyConstraint(name="racks", required=_RACK)
    objects = [
        *_in_racks(nodes, of_rack),
        queue("all", nodes * GPUS),
        *busy,
        *gang("wide", size, "all", gpus=1, topology=asked),
    ]
    return World(objects, Outcome(evicted=0, moved=0, promised=0, bound=size))


def sub_groups_over_hyper_nodes(nodes: int) -> World:
    """Let a gang wait with a sub-group of ten pods for each HyperNode of ten nodes."""
    leaves = nodes // _LEAF_NODES
    groups = [
        SubGroup(
            name=f"part-{at:04}",
            min_member=_LEAF_NODES,
            topology=TopologyConstraint(hyper_node_tier=_HOST_TIER),
        )
        for at in range(leaves)
    ]
    members = [
        _of_sub_group(pod(f"wide-{at:05}", GPUS, group="wide"), groups[at // _LEAF_NODES].name)
        for at in range(leaves * _LEAF_NODES)
    ]
    objects = [
        *(node(at) for at in range(nodes)),
        *(_hyper_node(f"leaf-{at:04}", _HOST_TIER, _nodes_of(at, nodes)) for at in range(leaves)),
        queue("all", nodes * GPUS),
        *gang("wide", 0, "all", sub_groups=groups),
        *members,
    ]
    return World(objects, Outcome(evicted=0, moved=0, promised=0, bound=len(members)))


def one_gang_among_hyper_nodes(nodes: int) -> World:
    """Let a gang of a hundred nodes wait below many HyperNodes: three for every five nodes.

    At 6,000 nodes there are 9,600 of them: one a node and more above.
    """
    size = min(_SPINE_NODES, nodes)
    hosts = [
        _hyper_node(f"host-{at:05}", _HOST_TIER, [Member(name=node_name(at))])
        for at in range(nodes)
    ]
    leaves = nodes * 3 // 5 - nodes // 100
    per_leaf = -(-nodes // leaves)
    of_spine = size // per_leaf
    owned: Sequence[Sequence[int]] = [
        range(at * per_leaf, min((at + 1) * per_leaf, nodes)) for at in range(leaves)
    ]
    middle = [
        _hyper_node(f"leaf-{at:05}", _LEAF_TIER, _children("host", each, 5))
        for at, each in enumerate(owned)
    ]
    above = [
        _hyper_node(
            f"spine-{at:03}",
            _SPINE_TIER,
            _children("leaf", range(leaves)[at * of_spine : (at + 1) * of_spine], 5),
        )
        for at in range(nodes // size)
    ]
    asked = TopologyConstraint(hyper_node_tier=_SPINE_TIER)
    objects = [
        *(node(at) for at in range(nodes)),
        *hosts,
        *middle,
        *above,
        queue("all", nodes * GPUS),
        *gang("wide", size, "all", topology=asked),
    ]
    return World(objects, Outcome(evicted=0, moved=0, promised=0, bound=size))


def reclaim_in_one_rack(nodes: int) -> World:
    """Let one queue hold every GPU; a gang takes back half of a rack of 32 nodes."""
    size, of_rack = 16, 32
    asked = TopologyConstraint(name="racks", required=_RACK)
    objects = [
        *_in_racks(nodes, of_rack),
        queue("holders", nodes * GPUS // 2),
        queue("claimants", nodes * GPUS // 2),
        *(pod(f"runs-{at:06}", 1, queue="holders", node=at // GPUS) for at in range(nodes * GPUS)),
        *gang("large", size, "claimants", topology=asked),
    ]
    return World(objects, Outcome(evicted=size * GPUS, moved=0, promised=size, bound=0))


def _in_racks(nodes: int, of_rack: int) -> Iterator[KubeObject]:
    levels = [TopologyLevel(node_label=_BLOCK), TopologyLevel(node_label=_RACK)]
    yield Topology(metadata=Meta(name="racks", uid="uid-racks"), spec=TopologySpec(levels=levels))
    for at in range(nodes):
        yield node(at, {_BLOCK: f"b{at // of_rack // 4}", _RACK: f"r{at // of_rack}"})


def _hyper_node(name: str, tier: int, members: Sequence[Member]) -> HyperNode:
    spec = HyperNodeSpec(tier=tier, members=list(members))
    return HyperNode(metadata=Meta(name=name, uid=f"uid-{name}"), spec=spec)


def _nodes_of(leaf: int, nodes: int) -> list[Member]:
    first = leaf * _LEAF_NODES
    return [Member(name=node_name(at)) for at in range(first, min(first + _LEAF_NODES, nodes))]


def _children(prefix: str, numbers: Sequence[int], digits: int) -> list[Member]:
    return [Member(type="HyperNode", name=f"{prefix}-{at:0{digits}}") for at in numbers]


def _of_sub_group(item: KubeObject, name: str) -> KubeObject:
    labels = {**item.metadata.labels, SUB_GROUP_LABEL: name}
    metadata = msgspec.structs.replace(item.metadata, labels=labels)
    return msgspec.structs.replace(item, metadata=metadata)
