"""Who could be evicted: running pods as columns, and in which portions they go.

A portion (chunk) is what goes together: an extra pod of an elastic job by itself, the rest of a
gang as a whole. Inside a job extras go before the core, the last pods first.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.gangs import Group
from bindery.scheduler.model.jobs import NO_ROW, Job, Task, TaskStatus, Uid
from bindery.scheduler.model.verdicts import SortKey
from bindery.scheduler.planning.session import LAST, Session
from bindery.scheduler.solver.returning import Returning

_MOST_RECOUNTED = 64
"""Up to so many chunks are counted one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Pods of one job that are evicted together."""

    job: Job
    tasks: tuple[Task, ...]
    is_core: bool
    """Whether the gang falls below its minimum by it."""


def may_go(session: Session, task: Task) -> bool:
    """Return whether `task` may be evicted at all, for whomever."""
    return task.is_preemptible and task.row != NO_ROW and task.uid not in session.spared


MayGo = Callable[[Session, Task], bool]


def chunks(session: Session, job: Job, allowed: MayGo = may_go) -> list[Chunk]:
    """Return the portions in which `job` can be evicted, in the order in which they go.

    Pods that are not `allowed` to go count towards its minimum, so that others are extras; the rest
    of the gang goes only as a whole.
    """
    running = [task for task in job.tasks.values() if task.status is TaskStatus.RUNNING]
    if len(running) > 1:  # most jobs are one pod, and keys cost more than all else here
        running.sort(key=session.pod_sort_key, reverse=True)
    free = {task.uid for task in running if allowed(session, task)}
    found = [Chunk(job, tuple(extra), is_core=False) for extra in _extras(job, running, free)]
    gone = {task.uid for chunk in found for task in chunk.tasks}
    core = tuple(task for task in running if task.uid not in gone)
    if core and all(task.uid in free for task in core):
        found.append(Chunk(job, core, is_core=True))
    return found


def _extras(job: Job, running: Sequence[Task], free: AbstractSet[Uid]) -> Iterable[list[Task]]:
    """Yield what can go of the `free` pods while the gang keeps its minimum.

    `running`: in order of eviction.
    """
    surplus = job.placed.total - job.min_member
    spare_roles = {role: job.placed.roles[role] - least for role, least in job.roles.items()}
    spare_leaves: dict[str, int] = {}
    if job.tree is not None:
        pinned = {task.sub_group for task in running if task.uid not in free}
        for group in _optional(job, job.tree, pinned):
            members = {leaf.name for leaf in group.leaves()}
            tasks = [task for task in running if task.sub_group in members]
            if tasks and len(tasks) <= surplus and _roles_allow(tasks, spare_roles):
                surplus -= len(tasks)
                yield tasks
                running = [task for task in running if task not in tasks]
        spare_leaves = {leaf.name: -job.lacking(leaf) for leaf in job.tree.leaves()}
        if job.tree.is_satisfied(job.lacking):
            useless = (leaf.name for leaf in _useless_leaves(job, job.tree))
            spare_leaves.update((name, job.placed.groups[name]) for name in useless)
    for task in running:
        spare = spare_leaves.get(task.sub_group, surplus)
        if task.uid not in free or surplus <= 0 or spare <= 0:
            continue
        if _roles_allow([task], spare_roles):
            surplus -= 1
            if task.sub_group in spare_leaves:
                spare_leaves[task.sub_group] -= 1
            yield [task]


def _optional(job: Job, group: Group, pinned: AbstractSet[str]) -> Iterable[Group]:
    """Yield satisfied groups that `group` can do without, the last written first.

    `pinned`: leaves with pods that may not go.
    """
    satisfied = [child for child in group.children if child.is_satisfied(job.lacking)]
    surplus = len(satisfied) - group.needed_children
    for child in reversed(satisfied):
        if surplus > 0 and pinned.isdisjoint(leaf.name for leaf in child.leaves()):
            surplus -= 1
            yield child
        else:
            yield from _optional(job, child, pinned)


def _useless_leaves(job: Job, group: Group) -> Iterable[Group]:
    """Yield the leaves of `group`, which is satisfied, whose pods are too few to count."""
    for child in group.children:
        if child.is_satisfied(job.lacking):
            yield from _useless_leaves(job, child)
        else:
            yield from child.leaves()


def _roles_allow(tasks: Sequence[Task], spare: dict[str, int]) -> bool:
    for task in tasks:
        if spare.get(task.role, 1) <= 0:
            return False
    for task in tasks:
        if task.role in spare:
            spare[task.role] -= 1
    return True


def _sort_keys(session: Session, chunks: Sequence[Chunk]) -> list[SortKey]:
    """Return for each chunk the key that its job has when those that go before it have gone.

    An elastic job that is down at its minimum stands with those that have no more than theirs.
    """
    keys = []
    trial = session.statement()
    for position, chunk in enumerate(chunks):
        key: SortKey = (LAST,)
        with session.guarded(chunk.job):
            key = session.job_sort_key(chunk.job)
        keys.append(key)
        if position + 1 < len(chunks) and chunks[position + 1].job is chunk.job:
            with session.guarded(chunk.job), suppress(LedgerRefusalError):
                for task in chunk.tasks:
                    trial.evict(task, "to see where its job stands then")
    session.undo(trial)
    return keys


class VictimTable:
    """All chunks of all jobs, as columns over their pods.

    Made once a session; `gone` marks what a committed plan has taken. `allowed`: see `chunks`.
    """

    def __init__(self, session: Session, allowed: MayGo = may_go) -> None:
        self.chunks: list[Chunk] = []
        chunk_of: list[int] = []
        rows: list[int] = []
        requests: list[Task] = []
        for job in session.state.jobs.values():
            found: list[Chunk] = []
            with session.guarded(job):
                found = chunks(session, job, allowed)
            for chunk in found:
                for task in chunk.tasks:
                    chunk_of.append(len(self.chunks))
                    rows.append(task.row)
                    requests.append(task)
                self.chunks.append(chunk)
        self.row: NDArray[np.intp] = np.array(rows, dtype=np.intp)
        """Pod -> node row."""
        self.chunk: NDArray[np.intp] = np.array(chunk_of, dtype=np.intp)
        """Pod -> its chunk; pods of one chunk stand together."""
        self._first: NDArray[np.intp] = np.searchsorted(self.chunk, np.arange(len(self.chunks) + 1))
        self.request: NDArray[np.int64] = np.zeros((len(session.state.axis), len(rows)), np.int64)
        """[resource, pod]."""
        for pod, task in enumerate(requests):
            request = session.state.nodes.demand(task.row, task.shape.request)
            self.request[list(request.indices), pod] = request.amounts
        self.returning = Returning(session, self.chunks)
        """Which chunks would be placed again after their eviction."""
        count = len(self.chunks)
        self._counted: BoolColumn = np.zeros(count, dtype=np.bool_)
        self._held = np.zeros((len(session.state.axis), len(session.state.nodes.nodes)), np.int64)
        """[resource, node]: what the `_counted` chunks hold."""
        self.queue: NDArray[np.intp] = np.array(
            [session.queue_row(chunk.job) for chunk in self.chunks], dtype=np.intp
        )
        """Chunk -> queue row."""
        self.priority: NDArray[np.int64] = np.array(
            [session.priority(chunk.job) for chunk in self.chunks], dtype=np.int64
        )
        """Chunk -> priority of its job."""
        self.is_core: BoolColumn = np.array([c.is_core for c in self.chunks], dtype=np.bool_)
        """Chunk -> whether its gang falls below its minimum by it."""
        self.started: NDArray[np.float64] = np.array(
            [session.running_since(c.job) for c in self.chunks], dtype=np.float64
        )
        """Chunk -> since when its job runs."""
        self.alive: BoolColumn = np.ones(count, dtype=np.bool_)
        """Chunk -> whether it is still running."""
        starts = {i: c.job for i, c in reversed(list(enumerate(self.chunks)))}
        first = {id(job): i for i, job in starts.items()}
        self._job_starts = [first[id(chunk.job)] for chunk in self.chunks]
        keys = _sort_keys(session, self.chunks)
        self.alive &= np.array([c.job not in session.failed for c in self.chunks], dtype=np.bool_)
        ranked = np.array(sorted(range(count), key=keys.__getitem__, reverse=True), dtype=np.intp)
        self.by_queue: dict[int, NDArray[np.intp]] = {}
        """Queue row -> its chunks in the order in which they go: the last job first, in a job
        extras before the core."""
        for queue in np.unique(self.queue):
            self.by_queue[int(queue)] = ranked[self.queue[ranked] == queue]
        self.place: NDArray[np.intp] = np.empty(count, dtype=np.intp)
        """Chunk -> its place in the order in which all go, whatever their queues."""
        self.place[ranked] = np.arange(count)

    def pods(self, chunk: int) -> slice:
        """Return where the pods of `chunk` stand."""
        return slice(int(self._first[chunk]), int(self._first[chunk + 1]))

    def first_of_job(self, chunk: int) -> int:
        """Return the first chunk of the job of `chunk`; a job's chunks are in a row."""
        return int(self._job_starts[chunk])

    def job_count(self, chosen: Iterable[int]) -> int:
        """Return of how many jobs the chunks `chosen` are."""
        return len({id(self.chunks[index].job) for index in chosen})

    def goes_with_its_core(self, index: int, chosen: Sequence[int]) -> bool:
        """Return whether `index` is an extra whose core is among `chosen` too."""
        job, chunks = self.chunks[index].job, self.chunks
        return not chunks[index].is_core and any(
            chunks[other].is_core and chunks[other].job is job for other in chosen
        )

    def held_on(self, chunk: int, row: int, resources: Sequence[int]) -> NDArray[np.int64]:
        """Return what `chunk` holds of each of `resources` on the node at `row`."""
        pods = self.pods(chunk)
        held = self.request[list(resources), pods]
        return np.asarray(held[:, self.row[pods] == row].sum(axis=1))

    def held_from(self, chunk: int) -> NDArray[np.int64]:
        """Return what `chunk` and those of its job that go after it hold: [resource]."""
        end = chunk + 1
        while end < len(self.chunks) and self._job_starts[end] == self._job_starts[chunk]:
            end += 1
        pods = slice(int(self._first[chunk]), int(self._first[end]))
        return np.asarray(self.request[:, pods].sum(axis=1))

    def evictable(self, eligible: BoolColumn, resources: Sequence[int]) -> NDArray[np.int64]:
        """Return what the `eligible` chunks (mask) hold on each node: [one of resources, node].

        Asked with nearly the same chunks again and again, so only the difference is counted.
        """
        changed = np.flatnonzero(eligible != self._counted)
        if len(changed) > _MOST_RECOUNTED:
            self._held[:] = 0
            pods = eligible[self.chunk]
            for resource, held in enumerate(self.request[:, pods]):
                if held.any():
                    sums = np.bincount(self.row[pods], held, self._held.shape[1])
                    self._held[resource] = sums.astype(np.int64)
        else:
            for chunk in changed.tolist():
                span = self.pods(chunk)
                sign = 1 if eligible[chunk] else -1
                np.add.at(self._held.T, self.row[span], sign * self.request[:, span].T)
        self._counted = eligible.copy()
        return self._held[list(resources)]

    def gone(self, indices: Iterable[int]) -> None:
        """Note that chunks have been evicted."""
        self.alive[list(indices)] = False
