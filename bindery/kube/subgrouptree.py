"""The tree that the sub-groups of a PodGroup form by their parents, and what is wrong with one.

The scheduler builds its gangs from it; the webhook refuses a PodGroup without one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bindery.api.states import MOST_SUB_GROUP_LEVELS, MOST_SUB_GROUPS
from bindery.kube.objects import SubGroup


class SubGroupTreeError(ValueError):
    """The sub-groups of a PodGroup do not form a tree; the message has the reason."""


@dataclass(frozen=True, slots=True)
class SubGroupTree:
    """The sub-groups by level and by parent."""

    levels: Sequence[Sequence[SubGroup]]
    """From the top down."""
    below: Mapping[str, Sequence[SubGroup]]
    """Parent -> its children, in the order of the spec; "" is the PodGroup itself."""


def tree_of(sub_groups: Sequence[SubGroup]) -> SubGroupTree:
    """Return the tree of `sub_groups`, at most `MOST_SUB_GROUP_LEVELS` deep.

    Raises:
        SubGroupTreeError: a name is used twice, a parent does not exist, the parents form a cycle,
            or there are too many sub-groups or levels.
    """
    if len(sub_groups) > MOST_SUB_GROUPS:
        raise SubGroupTreeError(f"spec.subGroups has more than {MOST_SUB_GROUPS} entries")
    below = _by_parent(sub_groups)
    levels = _levels(below)
    reached = {group.name for level in levels for group in level}
    if len(reached) < len(sub_groups):  # from the root, nothing leads into a cycle
        lost = next(group.name for group in sub_groups if group.name not in reached)
        raise SubGroupTreeError(f"spec.subGroups: {lost} is its own ancestor")
    return SubGroupTree(levels, below)


def _by_parent(sub_groups: Sequence[SubGroup]) -> dict[str, list[SubGroup]]:
    names = Counter(group.name for group in sub_groups)
    below: dict[str, list[SubGroup]] = {}
    for group in sub_groups:
        parent = group.parent or ""
        if names[group.name] > 1:
            raise SubGroupTreeError(f"spec.subGroups: the name {group.name} is used twice")
        if parent and parent not in names:
            text = f"spec.subGroups: the parent {parent} of {group.name} does not exist"
            raise SubGroupTreeError(text)
        below.setdefault(parent, []).append(group)
    return below


def _levels(below: Mapping[str, list[SubGroup]]) -> list[list[SubGroup]]:
    """Return the sub-groups by level, without those on or below a cycle."""
    levels: list[list[SubGroup]] = []
    level = below.get("", [])
    while level:
        if len(levels) == MOST_SUB_GROUP_LEVELS:
            raise SubGroupTreeError(
                f"spec.subGroups: {level[0].name} is more than {MOST_SUB_GROUP_LEVELS} levels deep"
            )
        levels.append(level)
        level = [child for group in level for child in below.get(group.name, ())]
    return levels
