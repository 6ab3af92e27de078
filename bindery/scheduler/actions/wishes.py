"""The wishes of a job in `allocate`: pods that are placed together, in nested domains.

A wish is the gang of the job; if that is complete, a sub-group or one extra pod. Each constrained
group of pods is placed in a domain of its own, inside the domain of the group above.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bindery.scheduler.model import gangs
from bindery.scheduler.model.gangs import Group
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.parts import split
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.stages import Stage
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.planning import next_pods
from bindery.scheduler.planning.by_size import largest_part
from bindery.scheduler.planning.nesting import Nest
from bindery.scheduler.planning.next_pods import Barred, WantedPods
from bindery.scheduler.planning.placement import JobFinder
from bindery.scheduler.planning.pod_domains import PodDomains, pod_domains, pod_without_domain
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.staging import awaited, first_groups, groups_of
from bindery.scheduler.planning.statement import Statement

Attempt = Callable[[Job, Statement, WantedPods, JobFinder], bool]
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

    def place(self, wanted: WantedPods) -> bool:
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

    def _place(self, wanted: WantedPods) -> bool:
        return self._attempt(self._job, self._statement, wanted, self.nest.finder)

    def place_later(self, starts: frozenset[str], inside: Group | None = None) -> bool:
        """Place the future pods of the stages that run at the same time as the groups `starts`.

        `inside`: only stages below this group. Pods that have a place already are left out.
        """
        return all(
            self.place_stage(stage) or self._refuse_for(stage)
            for stage in self._later(starts, inside)
        )

    def _later(self, starts: frozenset[str], inside: Group | None) -> list[Stage]:
        self._session.timer.check()
        found = awaited(self._job, starts)
        if inside is None or inside is self._job.tree:
            return found
        return [stage for stage in found if any(group is inside for group in stage.path)]

    def place_stage(self, stage: Stage) -> bool:
        """Place the future pods of `stage`; True also if it has no template for them."""
        futures = self._session.futures
        problem = futures.problem(self._job, stage) or futures.shortage(self._job, stage)
        if problem is not None:
            self._session.refusals[self._job] = Refusal(JobReason.UNSCHEDULABLE, problem)
            return False
        tasks = futures.of(self._job, stage)
        return not tasks or _SubGroups(self._job, tasks).place(stage.path, self)

    def _refuse_for(self, stage: Stage) -> bool:
        """Add to the refusal that `stage` has no room, and return False."""
        refusal = self._session.refusals.get(self._job)
        if refusal is not None:
            text = f"the later stage {stage.name} must fit at the same time: {refusal.message}"
            self._session.refusals[self._job] = replace(refusal, message=text)
        return False

    def futures(self, starts: frozenset[str], inside: Group | None = None) -> list[Task]:
        """Return the future pods that `place_later` is going to place."""
        later = self._later(starts, inside)
        return [task for stage in later for task in self._session.futures.of(self._job, stage)]

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

    def of_fitting(
        self,
        choose: Callable[[Barred], Sequence[Task]],
        place: Callable[[Sequence[Task]], bool],
    ) -> bool:
        """Run `place` for chosen pods, without pods for which no domain has room.

        `choose`: returns the first pods without the barred pods; empty if too few are left.
        """
        nest, barred = self.nest, Barred(self._session.placement)
        nest.give_back(None)
        first_ask, tasks = None, choose(barred)
        while not place(tasks):
            ask = nest.take_ask()
            first_ask = first_ask or ask
            lost = pod_without_domain(tasks, self._domains) if ask is not None else None
            if lost is None or lost.is_future:  # a later stage cannot do without its pods
                break
            barred.add_shape(lost)
            tasks = choose(barred)
            if not tasks:
                break
        else:
            return True
        nest.give_back(first_ask)
        return False

    def _domains(self, tasks: Sequence[Task]) -> Iterator[PodDomains]:
        return pod_domains(self._session, self._job, tasks, within=self.nest.domain)

    def in_job(self, tasks: Sequence[Task], attempt: Callable[[], bool]) -> bool:
        """Run `attempt` for `tasks` in the domain of the job."""
        key = self._job.key
        return self.nest.inside(self._job.topology, tasks, lambda task: task.job == key, attempt)


def wishes(session: Session, job: Job) -> Iterator[Wish]:
    """Yield the next wishes of `job`: its gang; if that is complete, sub-groups and extra pods."""
    tasks = session.calls.pods_in_order(job)
    if not job.is_satisfied:
        starts = first_groups(job) if job.stages else frozenset[str]()
        yield Wish(partial(_gang, job, tasks, starts), starts)
        return
    if job.tree is not None:
        for group in gangs.optional(job.tree, job.lacking):
            path = job.tree.path_to(group.name)
            starts = groups_of(group) if job.stages else frozenset[str]()
            yield Wish(partial(_SubGroups(job, tasks, starts).place, path), starts)
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
        groups = _SubGroups(job, tasks, starts)
        if job.tree is not None and not groups.satisfy_all(job.tree, placing):
            return False
        if not placing.place(next_pods.of_gang(job, tasks)):
            return False
        return not starts or placing.place_later(starts)

    if job.topology is None:
        return attempt()
    candidates = next_pods.of_gang(job, tasks)

    def choose(barred: Barred) -> Sequence[Task]:
        wanted = candidates.next(barred)
        return () if wanted is None else [*wanted, *placing.futures(starts)]

    return placing.of_fitting(choose, lambda chosen: placing.in_job(chosen, attempt))


class _SubGroups:
    """Places sub-groups of `job`, each with the later stages that share its domain.

    `tasks`: the pending pods of the job in order. `starts`: the groups that start now.
    """

    def __init__(
        self, job: Job, tasks: Sequence[Task], starts: frozenset[str] = frozenset()
    ) -> None:
        self._job = job
        self._starts = starts
        self._size: Callable[[Group], float] | None = None
        """The size of a group, if the largest group is placed first."""
        of_leaf: defaultdict[str, list[Task]] = defaultdict(list)
        for task in tasks:
            of_leaf[task.sub_group].append(task)
        self._of_leaf: Mapping[str, Sequence[Task]] = of_leaf
        self._waiting = {name: len(tasks) for name, tasks in of_leaf.items()}

    def place(self, path: Sequence[Group], placing: Placing) -> bool:
        """Place the missing pods of the last group of `path`, which begins at the root.

        Then the later stages that start with it.
        """
        group, below = path[0], path[1:]
        if not below:
            return self._place(group, placing)

        def attempt() -> bool:
            return self.place(below, placing) and self._place_later(group, placing)

        return self._in_group(group, path[-1], placing, attempt)

    def satisfy_all(self, root: Group, placing: Placing) -> bool:
        """Place the missing pods of all sub-groups, in the domain that is chosen already."""
        go_back = placing.mark()
        if self.satisfy(root, placing):
            return True
        # A small sub-group may have taken the only domain or node of a large one.
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
        """Yield the sizes by which sub-groups are ordered, if they change the order."""

        def pods(group: Group) -> float:
            return len(self._tasks(group, placing))

        def resources(group: Group) -> float:
            """Return the largest part of the cluster that it requests of any resource."""
            return largest_part(self._tasks(group, placing), placing.cluster_total)

        def pod(group: Group) -> float:
            """Return the largest part of the cluster that one of its pods requests."""
            of_shape = {task.shape: task for task in self._tasks(group, placing)}
            parts = (largest_part([task], placing.cluster_total) for task in of_shape.values())
            return max(parts, default=0.0)

        orders = [[group.name for group in root.all_groups()]]
        for size in (pods, resources, pod) if self._job.is_constrained else (pod,):
            order = [group.name for group in sorted(root.all_groups(), key=size, reverse=True)]
            if order not in orders:
                orders.append(order)
                yield size

    def _in_order(self, children: Sequence[Group]) -> Sequence[Group]:
        size = self._size
        return children if size is None else sorted(children, key=size, reverse=True)

    def satisfy(self, group: Group, placing: Placing) -> bool:
        """Place the missing pods of `group`, in the domain that is chosen already."""

        def attempt(leaf: Group) -> bool:
            return placing.place(
                next_pods.of_leaf(self._job, leaf, self._of_leaf.get(leaf.name, ()))
            )

        return gangs.satisfy(
            group,
            attempt,
            lambda each: each.is_satisfied(self._job.lacking),
            placing.mark,
            lambda child: self._place(child, placing),
            self._in_order,
        )

    def _place(self, group: Group, placing: Placing) -> bool:
        def attempt() -> bool:
            return self.satisfy(group, placing) and self._place_later(group, placing)

        return self._in_group(group, group, placing, attempt)

    def _in_group(
        self, group: Group, placed: Group, placing: Placing, attempt: Callable[[], bool]
    ) -> bool:
        """Run `attempt` in the domain of `group` for the pods of `placed`, a group below it."""
        constraint = self._job.topology if group is self._job.tree else group.topology
        if constraint is None:
            return attempt()

        def choose(barred: Barred) -> Sequence[Task]:
            return [*self._wanted(placed, barred), *self._later(group, placing)]

        return placing.of_fitting(choose, lambda tasks: placing.in_groups((group,), tasks, attempt))

    def _place_later(self, group: Group, placing: Placing) -> bool:
        """Place the later stages below `group`, if they share a domain.

        A domain that has no room for them is then not chosen for the first stage.
        """
        is_root = group is self._job.tree
        if not self._starts or not (is_root or group.topology):
            return True
        return placing.place_later(self._starts, group)

    def _later(self, group: Group, placing: Placing) -> Sequence[Task]:
        """Return the future pods of the later stages below `group`."""
        return placing.futures(self._starts, group) if self._starts else ()

    def _tasks(self, group: Group, placing: Placing) -> Sequence[Task]:
        """Return the pods that `group` takes next, and the future pods of later stages below it."""
        return [*self._wanted(group), *self._later(group, placing)]

    def _wanted(self, group: Group, barred: Barred | None = None) -> Sequence[Task]:
        """Return the pods that `group` takes next if all fit; `barred` pods are left out."""
        of_leaf, waiting = self._of_leaf, self._waiting
        if barred is not None:
            of_leaf = {
                name: [task for task in tasks if task not in barred]
                for name, tasks in of_leaf.items()
            }
            waiting = {name: len(tasks) for name, tasks in of_leaf.items()}
        counts = gangs.wanted(group, self._job.lacking, waiting) or {}
        return [task for name, count in counts.items() for task in of_leaf.get(name, ())[:count]]


def _one(job: Job, task: Task, placing: Placing) -> bool:
    def attempt() -> bool:
        return placing.place(next_pods.of_one(task))

    path = job.tree.path_to(task.sub_group) if job.tree is not None else ()
    if path:
        return placing.in_groups(path, [task], attempt)
    return placing.in_job([task], attempt)
