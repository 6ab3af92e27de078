"""The wishes of a job in `allocate`: pods that are placed together, in nested domains.

A wish is the gang of the job; if that is complete, a sub-group or one extra pod. Each constrained
group of pods is placed in a domain of its own, inside the domain of the group above.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bindery.scheduler.model import gangs
from bindery.scheduler.model.gangs import Group
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.parts import split
from bindery.scheduler.model.resources import total
from bindery.scheduler.model.stages import Stage
from bindery.scheduler.planning import next_pods
from bindery.scheduler.planning.nesting import Nest
from bindery.scheduler.planning.next_pods import Wanted
from bindery.scheduler.planning.placement import JobFinder
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.staging import awaited, first_groups, groups_of
from bindery.scheduler.planning.statement import Statement

Attempt = Callable[[Job, Statement, Wanted, JobFinder], bool]
"""Places all wanted pods with a finder, or none; returns whether they were placed."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Pods that belong together."""

    place: Callable[["Placing"], bool]
    """Places them; returns whether all were placed."""
    starts: frozenset[str] = frozenset()
    """The sub-groups that start with it. Stages that run at the same time must fit too."""


class Placing:
    """Places the pods of one wish in one Statement, in the domains of `nest`."""

    def __init__(
        self, session: Session, job: Job, statement: Statement, nest: Nest, attempt: Attempt
    ) -> None:
        self._session = session
        self._attempt = attempt
        self._job = job
        self._statement = statement
        self.nest = nest
        self.cluster_total = session.cluster_total
        """Sum of allocatable over all nodes [resource], at least 1."""

    def place(self, wanted: Wanted) -> bool:
        """Place all `wanted` pods, each part in its domain; return whether they were placed.

        If not, pods of some parts may have been placed.
        """
        job = self._job
        is_divided = job.unit_count or job.has_segments
        parts = split(job, wanted.all() or ()) if is_divided else ()
        if not parts:
            return self._place(wanted)
        return all(
            self.nest.inside(
                part.constraint,
                part.tasks,
                part.is_member,
                partial(self._place, next_pods.of_all(part.tasks)),
            )
            for part in parts
        )

    def _place(self, wanted: Wanted) -> bool:
        return self._attempt(self._job, self._statement, wanted, self.nest.finder)

    def place_later(self, starts: frozenset[str]) -> bool:
        """Place the future pods of the stages that run at the same time as the groups `starts`."""
        return all(
            self.place_stage(stage) or self._refuse_for(stage)
            for stage in awaited(self._job, starts)
        )

    def place_stage(self, stage: Stage) -> bool:
        """Place the future pods of `stage`; True also if it has no template for them."""
        futures = self._session.futures.of(self._job, stage)
        return not futures or _SubGroups(self._job, futures).place(stage.path, self)

    def _refuse_for(self, stage: Stage) -> bool:
        """Say in the refusal that `stage` has no room, and return False."""
        refusal = self._session.refusals.get(self._job)
        if refusal is not None:
            text = f"the later stage {stage.name} must fit at the same time: {refusal.message}"
            self._session.refusals[self._job] = replace(refusal, message=text)
        return False

    def futures(self, starts: frozenset[str]) -> list[Task]:
        """Return the future pods that `place_later` is going to place."""
        found = (self._session.futures.of(self._job, stage) for stage in awaited(self._job, starts))
        return [task for tasks in found for task in tasks]

    def mark(self) -> Callable[[], None]:
        """Return a function that goes back to this point."""
        return partial(self._statement.rollback, self._statement.savepoint())

    def in_groups(
        self, groups: Sequence[Group], tasks: Sequence[Task], attempt: Callable[[], bool]
    ) -> bool:
        """Run `attempt` for `tasks` in the domain of the job, and in those of nested `groups`."""
        job = self._job
        if not groups:
            return attempt()

        def below() -> bool:
            return self.in_groups(groups[1:], tasks, attempt)

        group = groups[0]
        if group is job.tree:
            return self.in_job(tasks, below)
        if group.topology is None:
            return below()
        names = {leaf.name for leaf in group.leaves()}
        return self.nest.inside(
            group.topology,
            tasks,
            lambda task: task.job == job.key and task.sub_group in names,
            below,
            is_new=not any(job.placed.groups[name] + job.promised.groups[name] for name in names),
        )

    def in_job(self, tasks: Sequence[Task], attempt: Callable[[], bool]) -> bool:
        """Run `attempt` for `tasks` in the domain of the job."""
        key = self._job.key
        return self.nest.inside(self._job.topology, tasks, lambda task: task.job == key, attempt)


def wishes(session: Session, job: Job) -> Iterator[Wish]:
    """Yield the next wishes of `job`: its gang; if that is complete, sub-groups and extra pods."""
    tasks = session.pods_in_order(job)
    if not job.is_satisfied:
        starts = first_groups(job) if job.stages else frozenset[str]()
        yield Wish(partial(_gang, job, tasks, starts), starts)
        return
    if job.tree is not None:
        for group in gangs.optional(job.tree, job.lacking):
            path = job.tree.path_to(group.name)
            starts = groups_of(group) if job.stages else frozenset[str]()
            yield Wish(partial(_SubGroups(job, tasks).place, path, starts=starts), starts)
    lacking = {leaf.name for leaf in job.tree.leaves() if job.lacking(leaf) > 0} if job.tree else ()
    # One attempt for each shape: equal pods would fail in the same way.
    first_of_kind = {
        (
            task.uid if session.placement.is_filtered(task.shape) else task.shape,
            _constrained_group(job, task),
        ): task
        for task in reversed(tasks)
        if task.sub_group not in lacking
    }
    for task in sorted(first_of_kind.values(), key=tasks.index):
        yield Wish(partial(_one, job, task))


def _constrained_group(job: Job, task: Task) -> str:
    """Return the sub-group of `task` if its place depends on it; else ""."""
    return task.sub_group if job.is_constrained else ""


def _gang(job: Job, tasks: Sequence[Task], starts: frozenset[str], placing: Placing) -> bool:
    """Place the missing pods of the gang: sub-groups, then roles and the rest of the minimum.

    At the end, the later stages that run at the same time as the groups `starts`.
    """

    def attempt() -> bool:
        if job.tree is not None and not _SubGroups(job, tasks).satisfy_all(job.tree, placing):
            return False
        if not placing.place(next_pods.of_gang(job, tasks)):
            return False
        return not starts or placing.place_later(starts)

    if job.topology is None:
        return attempt()
    wanted = next_pods.of_gang(job, tasks).all() or ()
    return placing.in_job([*wanted, *placing.futures(starts)], attempt)


class _SubGroups:
    """Places sub-groups of `job`. `tasks`: its pending pods in order."""

    def __init__(self, job: Job, tasks: Sequence[Task]) -> None:
        self._job = job
        self._size: Callable[[Group], float] | None = None
        """The size of a group, if the largest is to be placed first."""
        self._of_leaf: defaultdict[str, list[Task]] = defaultdict(list)
        for task in tasks:
            self._of_leaf[task.sub_group].append(task)
        self._waiting = {name: len(tasks) for name, tasks in self._of_leaf.items()}

    def place(
        self, path: Sequence[Group], placing: Placing, *, starts: frozenset[str] = frozenset()
    ) -> bool:
        """Place the missing pods of the last group of `path`, which begins at the root.

        Then the later stages that run at the same time as the groups `starts`.
        """
        group = path[-1]

        def attempt() -> bool:
            return self._place(group, placing) and (not starts or placing.place_later(starts))

        futures = placing.futures(starts) if starts else ()
        return placing.in_groups(path[:-1], [*self._wanted(group), *futures], attempt)

    def satisfy_all(self, root: Group, placing: Placing) -> bool:
        """Place the missing pods of all sub-groups, in the domain that is chosen already."""
        go_back = placing.mark()
        if self.satisfy(root, placing):
            return True
        if not self._job.is_constrained:
            return False
        # A small sub-group may have taken the only domain of a large one.
        go_back()
        for size in self._sizes(root, placing):
            self._size = size
            done = self.satisfy(root, placing)
            self._size = None
            if done:
                return True
            go_back()
        return False

    def _sizes(self, root: Group, placing: Placing) -> Iterator[Callable[[Group], float]]:
        """Yield the sizes by which sub-groups are ordered; the second if it changes the order."""

        def pods(group: Group) -> float:
            return len(self._wanted(group))

        def resources(group: Group) -> float:
            """Return the largest part of the cluster that it requests of any resource."""
            amounts = total(task.shape.request.on_nodes for task in self._wanted(group))
            return max((n / placing.cluster_total[at] for at, n in amounts.items()), default=0.0)

        yield pods
        names = [
            [group.name for group in sorted(root.all_groups(), key=size, reverse=True)]
            for size in (pods, resources)
        ]
        if names[0] != names[1]:
            yield resources

    def _in_order(self, children: Sequence[Group]) -> Sequence[Group]:
        size = self._size
        return children if size is None else sorted(children, key=size, reverse=True)

    def satisfy(self, group: Group, placing: Placing) -> bool:
        """Place the missing pods of `group`, in the domain that is chosen already."""

        def attempt(leaf: Group) -> bool:
            return placing.place(next_pods.of_leaf(self._job, leaf, self._of_leaf[leaf.name]))

        return gangs.satisfy(
            group,
            attempt,
            lambda each: each.is_satisfied(self._job.lacking),
            placing.mark,
            lambda child: self._place(child, placing),
            self._in_order,
        )

    def _place(self, group: Group, placing: Placing) -> bool:
        return placing.in_groups(
            (group,),
            self._wanted(group) if group.topology else (),
            lambda: self.satisfy(group, placing),
        )

    def _wanted(self, group: Group) -> Sequence[Task]:
        """Return the pods that `group` takes next if all fit."""
        counts = gangs.wanted(group, self._job.lacking, self._waiting) or {}
        return [task for name, count in counts.items() for task in self._of_leaf[name][:count]]


def _one(job: Job, task: Task, placing: Placing) -> bool:
    def attempt() -> bool:
        return placing.place(next_pods.of_one(task))

    path = job.tree.path_to(task.sub_group) if job.tree is not None else ()
    if path:
        return placing.in_groups(path, [task], attempt)
    return placing.in_job([task], attempt)
