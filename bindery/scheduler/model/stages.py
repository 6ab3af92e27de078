"""Stages of a gang: sub-groups whose pods are created when the pods of others have come far enough.

A later stage is not part of the gang's minimum, as its pods do not exist when the gang starts. It
runs at the same time as the stages that it follows, unless it waits for them to complete. Pure.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from bindery.scheduler.model.gangs import GangError, Group

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
    """Return the later stages of `tree`, each behind all stages that it follows.

    Raises:
        GangError: a sub-group comes after one that does not exist, or after itself.
    """
    paths = dict(_paths(tree, ()))
    stages = {
        name: Stage(path[-1], path, tuple(pair for group in path for pair in group.after))
        for name, path in paths.items()
        if path[-1].after
    }
    return tuple(_in_order(stages, paths)) if stages else ()


def _paths(group: Group, above: tuple[Group, ...]) -> Iterator[tuple[str, tuple[Group, ...]]]:
    path = (*above, group)
    yield group.name, path
    for child in group.children:
        yield from _paths(child, path)


def _in_order(
    stages: Mapping[str, Stage], paths: Mapping[str, tuple[Group, ...]]
) -> Iterator[Stage]:
    """Yield `stages` in topological order, otherwise in the order of the spec."""
    followers: dict[str, list[str]] = {name: [] for name in stages}
    count = dict.fromkeys(stages, 0)
    for name, stage in stages.items():
        for other in _stages_before(stage, stages, paths):
            followers[other].append(name)
            count[name] += 1
    ready = deque(name for name, left in count.items() if not left)
    done = 0
    while ready:
        name = ready.popleft()
        done += 1
        yield stages[name]
        for follower in followers[name]:
            count[follower] -= 1
            if not count[follower]:
                ready.append(follower)
    if done < len(stages):
        lost = next(name for name, left in count.items() if left)
        raise GangError(f"spec.subGroups: {lost} comes after itself")


def _stages_before(
    stage: Stage, stages: Mapping[str, Stage], paths: Mapping[str, tuple[Group, ...]]
) -> set[str]:
    """Return the later stages that `stage` follows, and those that it is part of."""
    found = {group.name for group in stage.path[:-1] if group.name in stages}
    for other, _ in stage.group.after:
        path = paths.get(other) if other else None
        if path is None:
            raise GangError(f"spec.subGroups: {stage.name} comes after {other}, which is missing")
        if path[-1] in stage.path or stage.group in path:
            raise GangError(f"spec.subGroups: {stage.name} comes after itself")
        above = (group.name for group in path)
        below = (group.name for group in path[-1].all_groups())
        found.update(name for name in (*above, *below) if name in stages)
    return found


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
