"""The possible victims: running pods and their units of eviction, as columns."""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bindery.api.configuration import DisruptionConfiguration, VictimPreference
from bindery.api.disruption import Asks
from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.model.columns import BoolColumn, IntColumns
from bindery.scheduler.model.jobs import Job, JobKey, Task, Uid
from bindery.scheduler.model.pinned_quota import PinnedQuota
from bindery.scheduler.model.resources import Request
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import LAST, SortKey
from bindery.scheduler.planning.session import Session
from bindery.scheduler.solver.units import EvictionUnit, MayGo, may_go, units

_MOST_RECOUNTED = 64
"""Up to this many changed units, the sums are updated unit by unit; above, they are recomputed."""
_MOST_GONE = 512
"""Up to this many units that have gone are passed over again and again in `by_queue`."""
_UNKNOWN = -1


class Returning:
    """Whether the pods of `units` would be placed again after their eviction; only these are moved.

    A pod returns only if a controller creates a replacement, and starts only if no plugin refuses
    its job. The check runs before the eviction, while the gang is whole. Answers are kept.
    """

    def __init__(self, session: Session, units: Sequence[EvictionUnit]) -> None:
        self._session = session
        self._units = units
        self._answers = np.full(len(units), _UNKNOWN, dtype=np.int8)
        """EvictionUnit -> 1 if all its pods return, 0 if not."""
        self._of_jobs: dict[JobKey, bool] = {}

    def of(self, index: int) -> bool:
        """Return whether all pods of the unit at `index` would be placed again."""
        if self._answers[index] == _UNKNOWN:
            self._answers[index] = self._ask(self._units[index])
        return bool(self._answers[index])

    def among(self, mask: BoolColumn) -> BoolColumn:
        """Return the units of `mask` whose pods would all be placed again."""
        for index in np.flatnonzero(mask & (self._answers == _UNKNOWN)).tolist():
            self._answers[index] = self._ask(self._units[index])
        return np.asarray(mask & (self._answers == 1))

    def _ask(self, unit: EvictionUnit) -> bool:
        job = unit.job
        if job.key not in self._of_jobs:
            self._of_jobs[job.key] = _may_be_planned(self._session, job)
        return self._of_jobs[job.key] and all(
            task.is_recreated and self._session.calls.task_refusal(task) is None
            for task in unit.tasks
        )


def _may_be_planned(session: Session, job: Job) -> bool:
    """Return whether plugins would let `job`, in its present state, be planned and bound."""
    return session.calls.invalid(job) is None and session.calls.is_ready(job)


@dataclass(frozen=True, slots=True)
class PodCost:
    """What the eviction of a pod costs."""

    share: float
    """The largest part of the cluster that the pod holds of any resource."""
    started_at: float
    """Time of its binding: seconds since the epoch."""
    checkpoint_at: float
    """Time of the last checkpoint of its work, or 0."""


def preference(kind: VictimPreference, pods: Sequence[PodCost], now: float) -> float:
    """Return the rank of `pods` as victims: where plugins make no difference, the largest goes."""
    match kind:
        case VictimPreference.NEWEST:
            return 0.0  # the order of jobs ends in their creation
        case VictimPreference.YOUNGEST:
            return min((pod.started_at for pod in pods), default=0.0)
        case VictimPreference.CHEAPEST:
            return -sum(pod.share for pod in pods)
        case VictimPreference.LEAST_WORK_LOST:
            return -sum(
                pod.share * max(0.0, now - max(pod.started_at, min(pod.checkpoint_at, now)))
                for pod in pods
            )


def _kept_needs(session: Session) -> dict[Job, IntColumns]:
    """Return gang -> the room that is kept for its later stages: [resource, node]."""
    found: dict[Job, IntColumns] = {}
    for each in session.reservations.all:
        if each.stage:
            found[each.job] = found[each.job] + each.needs if each.job in found else each.needs
    return found


def _places(
    unit: EvictionUnit, needs: Mapping[Job, IntColumns]
) -> Iterator[tuple[int, Task | None]]:
    """Yield the rows of the pods of `unit`, and after a core those of the room that is kept."""
    for task in unit.tasks:
        yield task.row, task
    if unit.is_core and unit.job in needs:
        for row in np.flatnonzero(needs[unit.job].any(axis=0)).tolist():
            yield row, None


def _sort_keys(session: Session, units: Sequence[EvictionUnit]) -> list[SortKey]:
    """Return for each unit the sort key of its job, after the eviction of its earlier units.

    So an elastic job that is reduced to its minimum sorts with the jobs at their minimum. Gangs
    with idle GPUs come last: they are the first victims of their queue.
    """
    keys = []
    trial = session.statement()
    for position, unit in enumerate(units):
        key: SortKey = (LAST,)
        with session.guarded(unit.job):
            key = (*session.calls.job_key(unit.job), *_preferred(session, unit))
        keys.append((unit.job.key in session.state.idle, *key))
        # The last unit of a job leaves nothing to compare.
        if position + 1 < len(units) and units[position + 1].job is unit.job:
            with session.guarded(unit.job), suppress(LedgerRefusalError):
                for task in unit.tasks:
                    trial.evict(task, "to compute the sort key of its job after it")
    session.undo(trial)
    return keys


def _preferred(session: Session, unit: EvictionUnit) -> SortKey:
    """Return the part of the sort key of `unit` after that of plugins."""
    job, kind = unit.job, session.state.disruption.prefer
    if kind is VictimPreference.NEWEST:  # the default needs no costs
        return job.created, job.key
    pods = [
        PodCost(
            _share(session, task),
            task.bound_at or 0.0,
            max(task.checkpoint_at, job.checkpoint_at),
        )
        for task in unit.tasks
    ]
    return preference(kind, pods, session.now), job.created, job.key


def asks_counted(configuration: DisruptionConfiguration) -> Asks:
    """Return the reasons to be left in place that count."""
    return Asks.BY_ANNOTATION | (Asks.LOCAL_DATA if configuration.local_data else Asks.NOTHING)


def _share(session: Session, task: Task) -> float:
    """Return the largest part of the cluster that `task` holds of any resource.

    GPUs that only queues count, such as those of claims, are a part of what queues divide.
    """
    request = session.state.nodes.demand(task.row, task.shape.request)
    total = session.cluster_total
    shares = (a / int(total[i]) for i, a in zip(request.indices, request.amounts, strict=True))
    index, gpus = request.counted_gpus or (0, 0)
    counted = gpus / max(float(session.shares.total[index]), 1.0)
    return max((counted, *shares))


def _job_starts(units: Sequence[EvictionUnit]) -> list[int]:
    """Return for each unit the position of the first unit of its job."""
    first: dict[int, int] = {}
    return [first.setdefault(id(unit.job), index) for index, unit in enumerate(units)]


class VictimTable:
    """All units of all jobs, as columns over pods and over units.

    Made once a session; `mark_gone` removes the units of a committed plan. `allowed`: see `units`.
    """

    _gone_since = 0
    """How many units have gone since they were left out of `by_queue`."""

    def __init__(self, session: Session, allowed: MayGo = may_go) -> None:
        self.units: list[EvictionUnit] = []
        quota, needs = PinnedQuota(session.state), _kept_needs(session)
        for job in session.state.jobs.values():
            with session.guarded(job):
                self.units += units(session, job, quota, allowed)
        held = [
            (index, row, task)
            for index, unit in enumerate(self.units)
            for row, task in _places(unit, needs)
        ]
        self.row: NDArray[np.intp] = np.array([row for _, row, _ in held], dtype=np.intp)
        """Pod -> node row."""
        self.unit: NDArray[np.intp] = np.array([index for index, _, _ in held], dtype=np.intp)
        """Pod -> its unit. The pods of a unit are adjacent.

        The room that is kept on a node for later stages counts as a pod of the core: it goes with
        the gang.
        """
        self._pods = [task for _, _, task in held]
        """None for kept room."""
        self._first: NDArray[np.intp] = np.searchsorted(self.unit, np.arange(len(self.units) + 1))
        self._nodes = session.state.nodes
        self._account = session.account
        self.request: NDArray[np.int64] = self._columns(self._nodes.demand)
        """[resource, pod]: what each pod takes on its node."""
        for pod, (index, row, task) in enumerate(held):
            if task is None:
                self.request[:, pod] = needs[self.units[index].job][:, row]
        self.returning = Returning(session, self.units)
        """The check whether units would be placed again after their eviction."""
        count = len(self.units)
        self._counted: BoolColumn = np.zeros(count, dtype=np.bool_)
        self._held = np.zeros((len(session.state.axis), len(session.state.nodes.nodes)), np.int64)
        """[resource, node]: what the `_counted` units hold."""
        self.queue: NDArray[np.intp] = np.array(
            [session.queue_row(unit.job) for unit in self.units], dtype=np.intp
        )
        """EvictionUnit -> queue row."""
        self.priority: NDArray[np.int64] = np.array(
            [session.priority(unit.job) for unit in self.units], dtype=np.int64
        )
        """EvictionUnit -> priority of its job."""
        self.is_core: BoolColumn = np.array([c.is_core for c in self.units], dtype=np.bool_)
        """EvictionUnit -> whether its gang falls below its minimum without it."""
        self.started: NDArray[np.float64] = np.array(
            [session.running_since(c.job) for c in self.units], dtype=np.float64
        )
        """EvictionUnit -> start of its job: seconds since the epoch."""
        self.alive: BoolColumn = np.ones(count, dtype=np.bool_)
        """EvictionUnit -> whether it is still running."""
        self._job_starts = _job_starts(self.units)
        self.left_alone: BoolColumn = self._left_alone(session)
        """EvictionUnit -> whether its pods ask to be left in place."""
        keys = _sort_keys(session, self.units)
        # Where a key could not be made, the job has failed: its units are no victims.
        self.alive &= np.array([c.job not in session.failed for c in self.units], dtype=np.bool_)
        ranked = np.array(sorted(range(count), key=keys.__getitem__, reverse=True), dtype=np.intp)
        self.by_queue: dict[int, NDArray[np.intp]] = {}
        """Queue row -> its units in the order of eviction: the last job first, and in a job extra
        pods before the core."""
        for queue in np.unique(self.queue):
            self.by_queue[int(queue)] = ranked[self.queue[ranked] == queue]
        self.place: NDArray[np.intp] = np.empty(count, dtype=np.intp)
        """EvictionUnit -> its position in the order of eviction of all units, without queues."""
        self.place[ranked] = np.arange(count)

    def mask(self, key: Hashable, make: Callable[[], BoolColumn]) -> BoolColumn:
        """Return a mask over units that is the same for the whole session. Do not write to it.

        The first call for `key` makes it.
        """
        if key not in self._masks:
            self._masks[key] = make()
        return self._masks[key]

    @cached_property
    def roomy(self) -> dict[Shape, int]:
        """Shape -> the row of a node that could lately take a pod of it: it is tried first."""
        return {}

    @cached_property
    def _on_row(self) -> dict[int, NDArray[np.intp]]:
        """The answers of `on_row`: one node is cleared for one pod after the other."""
        return {}

    @cached_property
    def _masks(self) -> dict[Hashable, BoolColumn]:
        return {}

    def on_rows(self, rows: BoolColumn) -> BoolColumn:
        """Return the units with a pod on one of `rows` (mask), as a new mask."""
        pods = rows[self.row]
        if len(pods) == len(self.units):  # each unit is one pod
            return pods
        return np.logical_or.reduceat(pods, self._first[:-1])

    def on_row(self, row: int) -> NDArray[np.intp]:
        """Return the units with a pod on the node at `row`, in ascending order. Do not write."""
        found = self._on_row.get(row)
        if found is None:
            pods, first = self._pods_by_row
            found = np.unique(self.unit[pods[first[row] : first[row + 1]]])
            self._on_row[row] = found
        return found

    @cached_property
    def _pods_by_row(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The pods sorted by their rows, and node row -> the position of its first pod there."""
        pods = np.argsort(self.row, kind="stable")
        return pods, np.searchsorted(self.row[pods], np.arange(self._held.shape[1] + 1))

    def _left_alone(self, session: Session) -> BoolColumn:
        counted = asks_counted(session.state.disruption)
        now = session.now
        asked = [any(task.asks_at(now) & counted for task in unit.tasks) for unit in self.units]
        mask = np.array(asked, dtype=np.bool_)
        # An extra pod would be left without its gang.
        kept = {self._job_starts[index] for index in np.flatnonzero(mask).tolist()}
        for index in range(len(self.units)) if kept else ():
            mask[index] |= self.is_core[index] and self._job_starts[index] in kept
        return mask

    def pods(self, unit: int) -> slice:
        """Return the positions of the pods of `unit`."""
        return slice(int(self._first[unit]), int(self._first[unit + 1]))

    def first_of_job(self, unit: int) -> int:
        """Return the first unit of the job of `unit`. The units of a job are adjacent."""
        return int(self._job_starts[unit])

    def job_count(self, chosen: Iterable[int]) -> int:
        """Return how many jobs the units `chosen` belong to."""
        return len({id(self.units[index].job) for index in chosen})

    def goes_with_its_core(self, index: int, chosen: Sequence[int]) -> bool:
        """Return whether the unit `index` is an extra pod and its core is in `chosen`."""
        job, units = self.units[index].job, self.units
        return not units[index].is_core and any(
            units[other].is_core and units[other].job is job for other in chosen
        )

    def held_on(self, unit: int, row: int, resources: Sequence[int]) -> NDArray[np.int64]:
        """Return the amounts of `resources` that `unit` holds on the node at `row`."""
        pods = self.pods(unit)
        held = self.request[list(resources), pods]
        return np.asarray(held[:, self.row[pods] == row].sum(axis=1))

    @cached_property
    def of_pod(self) -> Mapping[Uid, int]:
        """Pod -> its unit."""
        return {task.uid: index for index, unit in enumerate(self.units) for task in unit.tasks}

    @cached_property
    def _charged(self) -> NDArray[np.int64]:
        """[resource, pod]: what queues count for each pod."""
        return self._columns(self._nodes.charge)  # kept room is charged to the gang, not to pods

    def _columns(self, amounts: Callable[[int, Request], Request]) -> NDArray[np.int64]:
        """Return the `amounts` of the request of each pod at its row: [resource, pod].

        0 for kept room. Most pods share few requests, so each is written out once.
        """
        pods = self._pods
        requests = [None if p is None else amounts(p.row, p.shape.request) for p in pods]
        different = list({id(request): request for request in requests}.values())
        columns = np.zeros((len(self._nodes.axis), len(different)), np.int64)
        for at, request in enumerate(different):
            if request is not None:
                columns[list(request.indices), at] = request.amounts
        place = {id(request): at for at, request in enumerate(different)}
        return columns[:, [place[id(request)] for request in requests]]

    def held_from(self, unit: int) -> NDArray[np.int64]:
        """Return what `unit` and the later units of its job hold, as queues count: [resource]."""
        end = unit + 1
        while end < len(self.units) and self._job_starts[end] == self._job_starts[unit]:
            end += 1
        pods = slice(int(self._first[unit]), int(self._first[end]))
        held = self._charged[:, pods].sum(axis=1)
        beside = self._account.of(self.units[unit].job) if self.is_core[unit:end].any() else None
        return np.asarray(held if beside is None else held + beside)

    @property
    def lost(self) -> IntColumns:
        """What queues lose with each unit that is still running: [resource, unit].

        With a core, its queue loses the extra pods of the job, too, and what the gang holds beside
        its pods.
        """
        beside = self._account.by_job()
        if not beside:
            return self._lost
        lost = self._lost.copy()
        for key, amounts in beside.items():
            if (core := self._core_of.get(key)) is not None:
                lost[:, core] += amounts
        return lost

    @cached_property
    def _core_of(self) -> Mapping[JobKey, int]:
        """Gang -> the unit of its minimum."""
        return {unit.job.key: index for index, unit in enumerate(self.units) if unit.is_core}

    @cached_property
    def _lost(self) -> IntColumns:
        """[resource, unit]: what queues lose of pods. `mark_gone` keeps it current."""
        starts, of_job = np.unique(self._job_starts, return_inverse=True)
        of_jobs = np.zeros((len(self.request), len(starts)), np.int64)
        if self.units:
            of_jobs = np.add.reduceat(np.where(self.alive, self._own_loss, 0), starts, axis=1)
        return np.where(self.is_core, of_jobs[:, of_job], self._own_loss)

    @cached_property
    def _own_loss(self) -> IntColumns:
        """[resource, unit]: what queues count for the pods of each unit alone."""
        if not self.units:
            return np.zeros((len(self.request), 0), np.int64)
        return np.add.reduceat(self._charged, self._first[:-1], axis=1)

    @property
    def most_lost(self) -> Mapping[int, NDArray[np.int64]]:
        """Queue row -> the most that it loses with one of its units: [resource]."""
        return self._most_lost if not self._account.by_job() else self._most_of(self.lost)

    @cached_property
    def _most_lost(self) -> Mapping[int, NDArray[np.int64]]:
        # Units that go make it no larger, so it is a bound until the session ends.
        return self._most_of(self._lost)

    def _most_of(self, lost: IntColumns) -> Mapping[int, NDArray[np.int64]]:
        return {
            queue: lost[:, units].max(axis=1, initial=0) for queue, units in self.by_queue.items()
        }

    def evictable(self, eligible: BoolColumn, resources: Sequence[int]) -> NDArray[np.int64]:
        """Return what the `eligible` units (mask) hold on each node: [position in resources, node].

        Consecutive calls have nearly the same mask, so only the difference is counted.
        """
        self._count(eligible)
        return self._held[list(resources)]

    def evictable_on(
        self, eligible: BoolColumn, resources: Sequence[int], row: int
    ) -> Sequence[int]:
        """Return what the `eligible` units (mask) hold on the node at `row`, as `evictable`."""
        self._count(eligible)
        held: list[int] = self._held[:, row].tolist()
        return [held[index] for index in resources]

    def _count(self, eligible: BoolColumn) -> None:
        """Bring `_held` up to date: let `eligible` be the units that count."""
        changed = np.flatnonzero(eligible != self._counted)
        if len(changed) > _MOST_RECOUNTED:
            self._held[:] = 0
            pods = eligible[self.unit]
            for resource, held in enumerate(self.request[:, pods]):
                if held.any():
                    sums = np.bincount(self.row[pods], held, self._held.shape[1])
                    self._held[resource] = sums.astype(np.int64)
        else:
            for unit in changed.tolist():
                span = self.pods(unit)
                sign = 1 if eligible[unit] else -1
                np.add.at(self._held.T, self.row[span], sign * self.request[:, span].T)
        self._counted = eligible.copy()

    def first_places(self, eligible: BoolColumn) -> NDArray[np.intp]:
        """Return node row -> the least `place` of its `eligible` units (mask).

        It is the number of units where there is none.
        """
        first = np.full(self._held.shape[1], len(self.units), dtype=np.intp)
        pods = eligible[self.unit]
        np.minimum.at(first, self.row[pods], self.place[self.unit[pods]])
        return first

    def mark_gone(self, indices: Iterable[int]) -> None:
        """Mark the units `indices` as evicted."""
        gone = list(indices)
        self.alive[gone] = False
        self._gone_since += len(gone)
        if self._gone_since > _MOST_GONE:
            self._gone_since = 0
            self.by_queue = {q: units[self.alive[units]] for q, units in self.by_queue.items()}
        if "_lost" in self.__dict__:  # it has been asked for
            self._take_from_cores(gone)

    def _take_from_cores(self, gone: Sequence[int]) -> None:
        """Take the units `gone` out of what is lost with the cores of their jobs."""
        for index in gone:
            # The core is the last unit of its job.
            last = bisect_right(self._job_starts, self._job_starts[index]) - 1
            if self.is_core[last]:
                self._lost[:, last] -= self._own_loss[:, index]
