"""Topology, HyperNode and the constraints of PodGroups, as watched.

bindery.api.topology explains the fields. What does not decode is reported as malformed.
"""

from typing import Annotated, Final

import msgspec

from bindery.api import names
from bindery.kube.objects.podspec import NodeSelectorRequirement
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject


class TopologyLevel(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One level of a Topology: a node label."""

    node_label: str


class TopologySpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The levels of a tree, widest first."""

    levels: list[TopologyLevel]


class Topology(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """A tree over nodes by their labels."""

    spec: TopologySpec


class LabelSelector(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """`metav1.LabelSelector`, for nodes."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: list[NodeSelectorRequirement] = msgspec.field(default_factory=list)


class Member(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Members of a HyperNode."""

    type: str = "Node"
    name: str | None = None
    regex: str | None = None
    selector: LabelSelector | None = None


_Tier = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class HyperNodeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A domain that lists its members."""

    tier: _Tier
    members: list[Member] = msgspec.field(default_factory=list)


class HyperNode(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """A domain of a tree of HyperNodes."""

    spec: HyperNodeSpec


TOPOLOGIES: Final = Resource(names.GROUP, names.VERSION, "topologies", "Topology", False, Topology)
HYPER_NODES: Final = Resource(
    names.GROUP, names.VERSION, "hypernodes", "HyperNode", False, HyperNode
)
RESOURCES: Final = (TOPOLOGIES, HYPER_NODES)
