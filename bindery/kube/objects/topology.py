"""Topology and HyperNode (both cluster-scoped): trees over nodes, by labels or by lists.

An object that does not decode is reported as malformed.
"""

from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import field

from bindery.kube.objects.declaring import Kind, PrinterColumn, one_of, schema
from bindery.kube.objects.podspec import NodeSelectorRequirement
from bindery.kube.objects.resources import own_kind
from bindery.kube.objects.watched import CustomResource

MOST_LEVELS: Final = 16
"""Maximum number of levels of a Topology."""
MOST_MEMBERS: Final = 10_000
"""Maximum number of members of a HyperNode."""
MOST_TIER: Final = 1_000
"""The highest tier of a HyperNode."""

NodeLabel = Annotated[str, schema(minLength=1, maxLength=317)]
_Tier = Annotated[
    int,
    msgspec.Meta(ge=-(2**31), le=2**31 - 1, extra_json_schema={"minimum": 1, "maximum": MOST_TIER}),
]


class TopologyLevel(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """One level of a Topology."""

    node_label: NodeLabel
    """Nodes with the same value of this label, and of the labels of all levels above, are in one
    domain.
    """


class TopologySpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The levels of a tree."""

    levels: Annotated[list[TopologyLevel], schema(minItems=1, maxItems=MOST_LEVELS)]
    """The levels, the widest first. Each label occurs at most once."""


class Topology(CustomResource, frozen=True, rename="camel", kw_only=True, gc=False):
    """A tree over the nodes by their labels, such as block, rack and host."""

    kind_info: ClassVar[Kind] = Kind(
        kind="Topology",
        plural="topologies",
        short_names=("topo",),
        namespaced=False,
        columns=(
            PrinterColumn("Levels", ".spec.levels[*].nodeLabel"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        ),
    )
    spec: TopologySpec


class LabelRequirement(
    NodeSelectorRequirement, frozen=True, rename="camel", kw_only=True, gc=False
):
    """One requirement on the labels of nodes, as in Kubernetes' label selectors."""

    key: NodeLabel
    operator: Annotated[str, one_of("In", "NotIn", "Exists", "DoesNotExist")]
    values: Annotated[list[str] | None, schema(maxItems=MOST_MEMBERS)] = None


class LabelSelector(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Nodes by their labels; all parts must match."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: Annotated[list[LabelRequirement], schema(maxItems=100)] = field(
        default_factory=list
    )


class Member(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Members of a HyperNode: exactly one of `name`, `regex` and `selector`."""

    type: Annotated[str, one_of("Node", "HyperNode")] = "Node"
    name: str | None = None
    """The name of a member."""
    regex: Annotated[str | None, schema(maxLength=1000)] = None
    """A regular expression for the names of members; the expression must match the whole name."""
    selector: LabelSelector | None = None
    """Nodes by their labels; not for members of type HyperNode."""


class HyperNodeSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A domain of nodes that are close to each other in the network."""

    tier: _Tier
    """Distance in the network: the lower, the closer. Higher than the tiers of its members."""
    members: Annotated[list[Member], schema(maxItems=MOST_MEMBERS)] = field(default_factory=list)


class HyperNode(CustomResource, frozen=True, rename="camel", kw_only=True, gc=False):
    """A domain of a tree that lists its members, for networks that labels do not describe."""

    kind_info: ClassVar[Kind] = Kind(
        kind="HyperNode",
        plural="hypernodes",
        short_names=("hn",),
        namespaced=False,
        columns=(
            PrinterColumn("Tier", ".spec.tier", "integer"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        ),
    )
    spec: HyperNodeSpec


TOPOLOGIES: Final = own_kind(Topology)
HYPER_NODES: Final = own_kind(HyperNode)
