"""The tree that the sub-groups of a PodGroup form by their parents, and the errors in such a tree.

Some sub-groups are stages: they come after others. The scheduler builds its gangs from the tree;
the webhook refuses a PodGroup without a valid tree.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bindery.api.states import MOST_SUB_GROUP_LEVELS, MOST_SUB_GROUPS
from bindery.kube.objects.podgroups import SubGroup


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
            a sub-group comes after one that does not exist or after itself, or there are too many
            sub-groups or levels.
    """
    if len(sub_groups) > MOST_SUB_GROUPS:
        raise SubGroupTreeError(f"spec.subGroups has more than {MOST_SUB_GROUPS} entries")
    below = _by_parent(sub_groups)
    levels = _levels(below)
    reached = {group.name for level in levels for group in level}
    if len(reached) < len(sub_groups):  # from the root, nothing leads into a cycle
        lost = next(group.name for group in sub_groups if group.name not in reached)
        raise SubGroupTreeError(f"spec.subGroups: {lost} is its own ancestor")
    after = {group.name: [each.sub_group for each in group.after] for group in sub_groups}
    if any(after.values()):
        stage_order({name: others for name, others in after.items() if others}, _paths(levels))
    return SubGroupTree(levels, below)


def stage_order(
    after: Mapping[str, Sequence[str]], paths: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the keys of `after`: each key behind all its predecessors, else in the given order.

    Args:
        after: sub-group that comes later -> the sub-groups that it follows.
        paths: sub-group -> the sub-groups on the path from the top to the sub-group, with both
            ends.

    Raises:
        SubGroupTreeError: a sub-group comes after one that does not exist, or after itself.
    """
    below: defaultdict[str, list[str]] = defaultdict(list)
    for name in after:
        for above in paths[name]:
            below[above].append(name)
    followers: dict[str, list[str]] = {name: [] for name in after}
    count = dict.fromkeys(after, 0)
    for name in after:
        for other in set(_stages_before(name, after, paths, below)):
            followers[other].append(name)
            count[name] += 1
    ready = deque(name for name, left in count.items() if not left)
    ordered: list[str] = []
    while ready:
        ordered.append(ready.popleft())
        for follower in followers[ordered[-1]]:
            count[follower] -= 1
            if not count[follower]:
                ready.append(follower)
    if len(ordered) < len(after):
        lost = next(name for name, left in count.items() if left)
        raise SubGroupTreeError(f"spec.subGroups: {lost} comes after itself")
    return ordered


def _stages_before(
    name: str,
    after: Mapping[str, Sequence[str]],
    paths: Mapping[str, Sequence[str]],
    below: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    """Yield the later stages that the stage `name` follows or is a part of."""
    yield from (above for above in paths[name][:-1] if above in after)
    for other in after[name]:
        path = paths.get(other)
        if path is None:
            text = f"spec.subGroups: {name} comes after {other}, which is missing"
            raise SubGroupTreeError(text)
        if other in paths[name] or name in path:
            raise SubGroupTreeError(f"spec.subGroups: {name} comes after itself")
        yield from (above for above in path if above in after)
        yield from below.get(other, ())


def _paths(levels: Sequence[Sequence[SubGroup]]) -> dict[str, tuple[str, ...]]:
    """Return sub-group -> the sub-groups on the path from the top to the sub-group."""
    paths: dict[str, tuple[str, ...]] = {}
    for group in (group for level in levels for group in level):
        paths[group.name] = (*paths.get(group.parent or "", ()), group.name)
    return paths


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
