"""Topology and HyperNode (both cluster-scoped): trees over nodes, and the constraints of gangs."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from bindery.api.base import ApiModel, CustomResource, Kind, NonNegative, PrinterColumn
from bindery.api.states import MOST_GANG_PODS

MOST_LEVELS: Final = 16
"""Maximum number of levels of a Topology."""
MOST_MEMBERS: Final = 10_000
"""Maximum number of members of a HyperNode."""
MOST_TIER: Final = 1_000
"""The highest tier of a HyperNode."""
HARD: Final = "hard"
SOFT: Final = "soft"

NodeLabel = Annotated[str, Field(min_length=1, max_length=317)]


class Segments(ApiModel):
    """Consecutive pods of a gang, in the order of their ranks, that share a domain."""

    size: Annotated[int, Field(ge=1, le=MOST_GANG_PODS)]
    """Number of pods in a segment; the last segment has the rest."""
    required: str | None = None
    """The level at which each segment must be in one domain. Default: the preferred level, else the
    deepest level with room for a whole segment."""
    preferred: str | None = None
    """The level that is tried first."""


class TopologyConstraint(ApiModel):
    """The domain in which the pods must, or should, be together.

    Levels are node labels: of the Topology in `name`, or any label without a name. `hyperNodeTier`
    is for trees of HyperNodes.
    """

    name: str | None = None
    """The name of the Topology. Unset: each level is a tree of its own, of the nodes with that
    label.
    """
    required: str | None = None
    """The level at which all pods must be in one domain."""
    preferred: str | None = None
    """The deepest level to try first; the levels above it follow, up to the required level."""
    hyper_node_tier: NonNegative | None = None
    """The highest tier of a HyperNode that may hold all pods."""
    mode: Literal["hard", "soft"] | None = None
    """For HyperNodes: `soft` also allows nodes without a common HyperNode. Default: hard."""
    exclusive: bool = False
    """Whether the domain of the required level, or of the tier, is exclusively for this gang."""
    segments: Segments | None = None
    """Parts of the gang that are placed closer together than the whole."""


class TopologyLevel(ApiModel):
    """One level of a Topology."""

    node_label: NodeLabel
    """Nodes with the same value of this label, and of the labels of all levels above, are in one
    domain.
    """


class TopologySpec(ApiModel):
    """The levels of a tree."""

    levels: tuple[TopologyLevel, ...] = Field(min_length=1, max_length=MOST_LEVELS)
    """The levels, the widest first. Each label occurs at most once."""


class Topology(CustomResource):
    """A tree over the nodes by their labels, such as block, rack and host."""

    kind_info: ClassVar[Kind] = Kind(
        kind="Topology",
        plural="topologies",
        short_names=("topo",),
        namespaced=False,
        columns=(
            PrinterColumn(name="Levels", json_path=".spec.levels[*].nodeLabel"),
            PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp"),
        ),
    )
    spec: TopologySpec


class LabelRequirement(ApiModel):
    """One requirement on the labels of nodes, as in Kubernetes' label selectors."""

    key: NodeLabel
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[str, ...] | None, Field(max_length=MOST_MEMBERS)] = None


class LabelSelector(ApiModel):
    """Nodes by their labels; all parts must match."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    match_expressions: tuple[LabelRequirement, ...] = Field(default=(), max_length=100)


class Member(ApiModel):
    """Members of a HyperNode: exactly one of `name`, `regex` and `selector`."""

    type: Literal["Node", "HyperNode"] = "Node"
    name: str | None = None
    """The name of one member."""
    regex: Annotated[str | None, Field(max_length=1000)] = None
    """A regular expression for the names of members; it must match the whole name."""
    selector: LabelSelector | None = None
    """Nodes by their labels; not for members of type HyperNode."""


class HyperNodeSpec(ApiModel):
    """A domain of nodes that are close to each other in the network."""

    tier: Annotated[int, Field(ge=1, le=MOST_TIER)]
    """Distance in the network: the lower, the closer. Higher than the tiers of its members."""
    members: tuple[Member, ...] = Field(default=(), max_length=MOST_MEMBERS)


class HyperNode(CustomResource):
    """A domain of a tree that lists its members, for networks that labels do not describe."""

    kind_info: ClassVar[Kind] = Kind(
        kind="HyperNode",
        plural="hypernodes",
        short_names=("hn",),
        namespaced=False,
        columns=(
            PrinterColumn(name="Tier", type="integer", json_path=".spec.tier"),
            PrinterColumn(name="Age", type="date", json_path=".metadata.creationTimestamp"),
        ),
    )
    spec: HyperNodeSpec
