"""The topology constraint of a gang or of a sub-group, read from its PodGroup.

`plugins/topology` evaluates constraints. A constraint with a mistake makes its gang invalid; a
level or a Topology that does not exist is found later, when the trees are known.
"""

from dataclasses import dataclass

from bindery.kube.objects.podgroups import Segments, TopologyConstraint

HARD, SOFT = "hard", "soft"


class ConstraintError(ValueError):
    """A constraint contradicts itself; the message has the reason."""


@dataclass(frozen=True, slots=True)
class TreeKey:
    """Names a tree: a Topology, a tree of raw node labels, or (neither) the HyperNodes."""

    topology: str = ""
    labels: tuple[str, ...] = ()

    @property
    def is_of_hyper_nodes(self) -> bool:
        """Whether it is the tree of HyperNodes."""
        return not self.topology and not self.labels


@dataclass(frozen=True, slots=True)
class Constraint:
    """Where pods must, or should, be together. Levels are names; "" is none."""

    tree: TreeKey
    required: str = ""
    preferred: str = ""
    tier: int | None = None
    """The highest tier of a HyperNode for the pods; None for no limit."""
    is_exclusive: bool = False
    """Whether the domain of the required level, or of the tier, is for the gang alone."""
    segment_size: int = 0
    """Number of pods in a segment; 0 for none."""
    segment: "Constraint | None" = None
    """The constraint of each segment."""

    @property
    def level(self) -> str:
        """The level of its domain in records: "TOPOLOGY/LABEL", "/LABEL" or "tier N"."""
        if self.tier is not None:
            return f"tier {self.tier}"
        return f"{self.tree.topology}/{self.required}"

    @property
    def limits(self) -> bool:
        """Whether it restricts or orders nodes for the whole group."""
        return bool(self.required or self.preferred or self.tree.is_of_hyper_nodes)


def read(asked: TopologyConstraint | None) -> Constraint | None:
    """Return the constraint of a PodGroup, None for none; raises ConstraintError."""
    if asked is None or asked == TopologyConstraint():
        return None
    uses_tiers = asked.hyper_node_tier is not None or asked.mode is not None
    if uses_tiers and (asked.name or asked.required or asked.preferred):
        raise ConstraintError("it names levels of node labels and a tier of HyperNodes")
    if uses_tiers:
        return _of_hyper_nodes(asked)
    segments = asked.segments
    labels = (
        asked.required,
        segments and segments.required,
        asked.preferred,
        segments and segments.preferred,
    )
    levels = tuple(dict.fromkeys(label for label in labels if label))
    key = TreeKey(asked.name) if asked.name else TreeKey(labels=levels)
    if not asked.name and not levels:
        raise ConstraintError("it names no level")
    if asked.exclusive and not asked.required:
        raise ConstraintError("an exclusive domain needs a required level")
    return Constraint(
        key,
        asked.required or "",
        asked.preferred or "",
        is_exclusive=asked.exclusive,
        segment_size=_size(segments),
        segment=None if segments is None else _of_segments(key, segments),
    )


def _of_hyper_nodes(asked: TopologyConstraint) -> Constraint:
    if asked.mode not in (None, HARD, SOFT):
        raise ConstraintError(f"its mode is {asked.mode}: hard or soft is expected")
    if asked.segments is not None:
        raise ConstraintError("segments need levels of node labels")
    is_soft = asked.mode == SOFT
    if asked.exclusive and is_soft:
        raise ConstraintError("an exclusive domain needs the mode hard")
    # As in Volcano, a hard constraint without a tier means the lowest one.
    tier = None if is_soft else 1 if asked.hyper_node_tier is None else asked.hyper_node_tier
    return Constraint(TreeKey(), tier=tier, is_exclusive=asked.exclusive)


def _size(segments: Segments | None) -> int:
    if segments is None:
        return 0
    if segments.size < 1:
        raise ConstraintError(f"its segments have {segments.size} pods: at least 1 is expected")
    return segments.size


def _of_segments(key: TreeKey, segments: Segments) -> Constraint:
    if not segments.required and not segments.preferred:
        raise ConstraintError("its segments name no level")
    return Constraint(key, segments.required or "", segments.preferred or "")
