"""The tree of a gang's sub-groups, and which pods it needs next.

Pure arithmetic over counts. `jobs.py` has the counts; actions place what this module returns. A
leaf of the tree has pods and needs `minMember` of them. An inner group needs `minSubGroup` of its
children.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bindery.api.states import MOST_GANG_PODS
from bindery.kube.objects.podgroups import SubGroup
from bindery.kube.objects.subgrouptree import SubGroupTreeError, tree_of
from bindery.scheduler.model import constraints
from bindery.scheduler.model.constraints import Constraint


class GangError(ValueError):
    """The sub-groups of a PodGroup cannot be used; the message has the reason."""


@dataclass(frozen=True)
class Group:
    """A node of the tree. The name of the root is empty."""

    name: str
    min_member: int | None
    """For a leaf: the number of pods that it needs; None means all of its pods."""
    min_sub_group: int | None
    """For an inner group: the number of children that it needs; None means all."""
    children: tuple["Group", ...]
    topology: Constraint | None = None
    """Where its pods must, or should, be together."""
    after: tuple[tuple[str, str], ...] = ()
    """The sub-groups that come before it, with their conditions (see `stages`). With any, its pods
    are created later, and the group above does not need it."""

    @property
    def is_leaf(self) -> bool:
        """Whether the group has pods and no children."""
        return not self.children

    @property
    def needed_children(self) -> int:
        """Number of children that must be satisfied, without later stages."""
        count = sum(not child.after for child in self.children)
        return count if self.min_sub_group is None else min(self.min_sub_group, count)

    def leaves(self) -> Iterator["Group"]:
        """Yield all leaves of the group; a leaf yields itself."""
        if self.is_leaf:
            yield self
        for child in self.children:
            yield from child.leaves()

    @cached_property
    def leaf_names(self) -> Mapping[str, frozenset[str]]:
        """Name of the group, and of each group below it -> the names of its leaves."""
        found: dict[str, frozenset[str]] = {}
        for child in self.children:
            found |= child.leaf_names
        below = (found[child.name] for child in self.children)
        found[self.name] = frozenset().union(*below) if self.children else frozenset({self.name})
        return found

    def all_groups(self) -> Iterator["Group"]:
        """Yield the group and all groups below it, each after its parent."""
        yield self
        for child in self.children:
            yield from child.all_groups()

    def together(self) -> Iterator[str]:
        """Yield the names of the group and of the groups below it that start with it."""
        yield self.name
        for child in self.children:
            if not child.after:
                yield from child.together()

    def path_to(self, name: str) -> tuple["Group", ...]:
        """Return the groups from `self` down to the group `name`; empty if `name` is not below."""
        if self.name == name:
            return (self,)
        for child in self.children:
            below = child.path_to(name)
            if below:
                return (self, *below)
        return ()

    def is_satisfied(self, lacking: Callable[["Group"], int]) -> bool:
        """Return whether the group has its minimum; `lacking` maps a leaf to its missing pods."""
        if self.is_leaf:
            return lacking(self) <= 0
        return _done(self, lacking) >= self.needed_children


def _done(group: Group, lacking: Callable[[Group], int]) -> int:
    """Return how many of the children that `group` needs, or may count, are satisfied."""
    return sum(child.is_satisfied(lacking) for child in group.children if not child.after)


def build(sub_groups: Sequence[SubGroup], min_sub_group: int | None) -> Group | None:
    """Return the tree of `sub_groups`; None if there are none.

    The tree is at most `MOST_SUB_GROUP_LEVELS` deep, so functions on it may recurse.

    Raises:
        GangError: they do not form a tree, a minimum is negative or too high, or a topology
            contradicts itself.
    """
    if not sub_groups:
        return None
    try:
        tree = tree_of(sub_groups)
    except SubGroupTreeError as error:
        raise GangError(str(error)) from error
    built: dict[str, Group] = {}
    for level in reversed(tree.levels):  # bottom up, as a group is built with its children
        for group in level:
            children = tuple(built[child.name] for child in tree.below.get(group.name, ()))
            built[group.name] = _built(group, children)
    return Group("", None, min_sub_group, tuple(built[group.name] for group in tree.levels[0]))


def _built(group: SubGroup, children: tuple[Group, ...]) -> Group:
    for part in (group.min_member, group.min_sub_group):
        if part is not None and part < 0:
            raise GangError(f"spec.subGroups: {group.name} has a negative minimum")
        if part is not None and part > MOST_GANG_PODS:
            text = f"{group.name} has a minimum of {part}, the maximum is {MOST_GANG_PODS}"
            raise GangError(f"spec.subGroups: {text}")
    try:
        topology = constraints.read(group.topology)
    except constraints.ConstraintError as error:
        raise GangError(f"spec.subGroups: the topology of {group.name}: {error}") from error
    after = tuple((each.sub_group, each.condition) for each in group.after)
    return Group(group.name, group.min_member, group.min_sub_group, children, topology, after)


def wanted(
    group: Group, lacking: Callable[[Group], int], waiting: Mapping[str, int]
) -> dict[str, int] | None:
    """Return the number of pods that `group` takes next for each leaf, in the order of the spec.

    `waiting` maps a leaf name to its number of waiting pods. None means that too few pods wait.
    """
    if group.is_leaf:
        missing = max(0, lacking(group))
        return {group.name: missing} if missing <= waiting.get(group.name, 0) else None
    found: dict[str, int] = {}
    done, needed = _done(group, lacking), group.needed_children
    for child in group.children:
        if done < needed and not child.after and not child.is_satisfied(lacking):
            below = wanted(child, lacking, waiting)
            if below is not None:  # else a later child may count in its place
                found |= below
                done += 1
    return found if done >= needed else None


def optional(group: Group, lacking: Callable[[Group], int]) -> Iterator[Group]:
    """Yield the highest groups below the satisfied `group` that are not satisfied."""
    for child in group.children:
        if child.is_satisfied(lacking):
            yield from optional(child, lacking)
        else:
            yield child
