"""Stages of a gang: sub-groups whose pods are created when the pods of others have come far enough.

A later stage is not part of the gang's minimum, as its pods do not exist when the gang starts. It
runs at the same time as the stages that it follows, unless it waits for them to complete. Pure.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bindery.kube.objects.subgrouptree import stage_order
from bindery.scheduler.model.gangs import Group

COMPLETE = "Complete"
"""The condition of a stage after whose pods have succeeded; any other condition is reached by pods
that run."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A sub-group that comes later."""

    group: Group
    path: tuple[Group, ...]
    """The groups from the root down to `group`."""
    after: tuple[tuple[str, str], ...]
    """The sub-groups that come before, with their conditions; also those of the groups above."""

    @property
    def name(self) -> str:
        """The name of the sub-group."""
        return self.group.name


def read(tree: Group) -> tuple[Stage, ...]:
    """Return the later stages of `tree`, each behind all stages that it follows."""
    paths = dict(_paths(tree, ()))
    stages = {
        name: Stage(path[-1], path, tuple(pair for group in path for pair in group.after))
        for name, path in paths.items()
        if path[-1].after
    }
    if not stages:
        return ()
    after = {name: [other for other, _ in each.group.after] for name, each in stages.items()}
    names = {name: [group.name for group in path] for name, path in paths.items()}
    return tuple(stages[name] for name in stage_order(after, names))


def _paths(group: Group, above: tuple[Group, ...]) -> Iterator[tuple[str, tuple[Group, ...]]]:
    path = (*above, group)
    yield group.name, path
    for child in group.children:
        yield from _paths(child, path)


def successors(tree: Group, stages: Collection[Stage]) -> dict[str, tuple[str, ...]]:
    """Return leaf -> leaves whose pods exist only when the pods of the leaf have succeeded."""
    found: dict[str, set[str]] = {}
    by_name = {group.name: group for group in tree.all_groups()}
    for stage in stages:
        leaves = [leaf.name for leaf in stage.group.leaves()]
        for other, condition in stage.group.after:
            if condition == COMPLETE:
                for leaf in by_name[other].leaves():
                    found.setdefault(leaf.name, set()).update(leaves)
    return {name: tuple(sorted(leaves)) for name, leaves in found.items()}


def least_of_later(stages: Collection[Stage]) -> int:
    """Return the sum of the minima of all later leaves."""
    leaves = {leaf.name: leaf.min_member or 0 for each in stages for leaf in each.group.leaves()}
    return sum(leaves.values())
