"""The rehearsal of a submission: the cluster in memory, played until nothing changes any more.

`bindery whatif` calls this. The cluster is played with and without the submission, and the outcome
has only the differences: jobs that run, wait, are evicted or moved, and the reasons.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from bindery.api import numaplacement
from bindery.api.names import NUMA_ZONES_ANNOTATION
from bindery.kube.objects.queues import Queue
from bindery.kube.objects.watched import KubeObject, Node, Pod
from bindery.scheduler.insight.arrivals import Arrival, Arrivals, LaterStage
from bindery.scheduler.insight.comeback import Comeback, Fate, comeback
from bindery.scheduler.insight.shares import (
    ClusterShares,
    ShareChange,
    cluster_shares,
    share_changes,
)
from bindery.scheduler.insight.waiting import (
    Explanation,
    PlannedEviction,
    PlannedPod,
    explain_all,
    planned,
)
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import Job, JobKey, TaskStatus
from bindery.scheduler.planning.reports import RefusedPlan
from bindery.scheduler.world import World

MOST_CYCLES = 50
"""Maximum number of cycles; an outcome that still changes after them is not settled."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The outcome for one job."""

    job: JobKey
    workload: str
    """`Kind/name` of the submitted workload that it comes from; empty for other jobs."""
    queue: str
    runs: bool
    """Whether its gang has its minimum at the end; of independent pods, whether all run."""
    since_cycle: int
    """The cycle in which it got the minimum; 0 if it never does."""
    pods: tuple[PlannedPod, ...]
    """The pods that run at the end, with their nodes."""
    waiting_pods: int
    later_stages: tuple[LaterStage, ...]
    """Pods that come when others have ended; no room is kept for them."""
    explanation: Explanation | None
    """Why pods of it wait; None if none does."""


@dataclass(frozen=True, slots=True)
class RehearsedEviction:
    """An eviction and its cycle."""

    cycle: int
    eviction: PlannedEviction
    comes_back: bool
    """Whether its controller creates the pod again."""
    comeback: Comeback
    runs_again: bool = False
    """Whether the pod, or the one created for it, runs at the end of the rehearsal."""


@dataclass(frozen=True, slots=True)
class OverLimit:
    """The amount of a resource that a queue holds beyond its limit, in devices, cores or bytes."""

    held: float
    limit: float


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """The outcome for a submitted queue."""

    name: str
    problem: str
    """Why none of its jobs can be planned; empty if they can."""
    over_limit: dict[str, OverLimit]
    """By resource."""


@dataclass(frozen=True, slots=True)
class RehearsalOutcome:
    """The differences that the submission makes."""

    cycles: int
    settled: bool
    jobs: tuple[JobOutcome, ...]
    """The submitted jobs."""
    evictions: tuple[RehearsedEviction, ...]
    would_run_too: tuple[JobKey, ...]
    """Other jobs that run only with the submission."""
    would_wait_instead: tuple[JobKey, ...]
    """Other jobs that run only without the submission. An evicted job is in the list if it does not
    run again.
    """
    queues: tuple[QueueOutcome, ...] = ()
    """The submitted queues with a problem or beyond a limit."""
    shares: tuple[ShareChange, ...] = ()
    """If queues or nodes are submitted: the shares that differ at the end."""

    @property
    def runs(self) -> bool:
        """Whether all submitted jobs would run."""
        return all(job.runs for job in self.jobs)


class _Play:
    """One world, played cycle by cycle."""

    def __init__(self, world: World, arrivals: Sequence[Arrival] = ()) -> None:
        self.world = world
        self.arrivals = Arrivals(arrivals)
        self.evictions: list[RehearsedEviction] = []
        self.since: dict[JobKey, int] = {}
        """Job -> the first cycle after which its gang had its minimum."""
        self.cycles = 0
        self.settled = False

    def run(self) -> None:
        """Play cycles until one changes nothing; at most `MOST_CYCLES` and one for each arrival."""
        most = MOST_CYCLES + len(self.arrivals)
        while self.cycles < most and not self.settled:
            self.cycles += 1
            self.settled = not self._cycle()
            self.world.clock.now += 1
        self.cycles -= self.settled  # the last cycle, which changed nothing, does not count

    def running(self) -> set[JobKey]:
        """Return the jobs with a satisfied gang."""
        jobs = self.world.engine.cluster.state.jobs
        return {key for key, job in jobs.items() if job.tasks and job.is_scheduled}

    def _cycle(self) -> bool:
        """Play one cycle, its bindings, evictions and releases; return whether anything changed."""
        world, engine = self.world, self.world.engine
        drafts = list(engine.cycle())
        evictions = list(engine.report.evictions)
        for _, plan in groupby(evictions, key=lambda eviction: eviction.preemptor):
            self._evict(list(plan))
        world.bind(drafts)
        for key in self.running():
            self.since.setdefault(key, self.cycles)
        released = world.release()
        engine.spare_protected(math.inf)
        arrived = self.arrivals.come(world)
        return bool(drafts or evictions or released or arrived)

    def _evict(self, plan: Sequence[Eviction]) -> None:
        """Carry out the evictions of a plan, or none if a disruption budget forbids one."""
        world = self.world
        refused = world.refused(eviction.task.uid for eviction in plan)
        if refused is not None:
            uid, budget = refused
            # As the engine does after a refusal of the API server: the whole plan is dropped.
            (at,) = (each for each in plan if each.task.uid == uid)
            problem = f"PodDisruptionBudget {budget} does not allow it"
            world.engine.dropped(RefusedPlan(at, tuple(plan), problem, is_begun=False))
            return
        pods = [world.pods[eviction.task.uid] for eviction in plan]
        together = Counter(map(_controller, pods))
        for eviction, pod in zip(plan, pods, strict=True):
            after = comeback(pod, world.workload_jobs, together[_controller(pod)])
            returns = after.fate is Fate.COMES_BACK
            rehearsed = RehearsedEviction(
                self.cycles, planned(eviction, world.engine), returns, after
            )
            self.evictions.append(rehearsed)
            world.evict(eviction.task.uid, comes_back=returns)


def _controller(pod: Pod) -> str:
    """Return the UID of the pod's controller, "" if it has none."""
    return next((each.uid for each in pod.metadata.owner_references if each.controller), "")


def rehearse(
    make_world: Callable[[], World],
    submitted: Sequence[KubeObject],
    arrivals: Sequence[Arrival] = (),
    workloads: Mapping[JobKey, str] | None = None,
) -> RehearsalOutcome:
    """Return the outcome of `submitted`: play a world with and a world without it.

    `make_world` is called twice and must return equal worlds; the first one is dropped before the
    second is made, as each takes much memory. `arrivals`: the pods of `submitted` that come later.
    `workloads`: `Kind/name` of the workloads of which gangs were made.
    """
    known_as = workloads or {}
    changes_shares = any(isinstance(item, Queue | Node) for item in submitted)
    without = _without(make_world, with_shares=changes_shares)
    world = make_world()
    known = set(world.engine.cluster.state.jobs)
    for item in submitted:
        world.put(item)
    queues = tuple(_queues(world, submitted))
    state = world.engine.cluster.state
    # Jobs are known by their pods: an empty PodGroup has no outcome.
    new = [key for key, job in state.jobs.items() if key not in known and job.tasks]
    play = _Play(world, arrivals)
    play.run()
    waiting = [key for key in new if key in state.waiting]
    explanations = explain_all(world.engine, waiting)
    before, after = without.running, play.running()
    waits = {key for key in before - after if key in state.jobs and state.jobs[key].tasks}
    return RehearsalOutcome(
        cycles=play.cycles,
        settled=play.settled,
        jobs=tuple(
            _outcome(play, state.jobs[key], known_as.get(key, ""), explanations.get(key))
            for key in new
        ),
        evictions=_with_ends(play, _beyond(play.evictions, without.evictions)),
        would_run_too=tuple(sorted(after - before - set(new))),
        would_wait_instead=tuple(sorted(waits)),
        queues=queues,
        shares=_shares(without, world),
    )


@dataclass(frozen=True)
class _Without:
    """The end of the play without the submission."""

    running: set[JobKey]
    evictions: tuple[RehearsedEviction, ...]
    shares: ClusterShares | None
    """None if the submission has neither queues nor nodes; workloads change shares, too."""


def _without(make_world: Callable[[], World], *, with_shares: bool) -> _Without:
    """Play a world without the submission."""
    play = _Play(make_world())
    play.run()
    shares = None
    if with_shares:
        with play.world.engine.session() as session:
            shares = cluster_shares(session)
    return _Without(play.running(), tuple(play.evictions), shares)


def _shares(without: _Without, world: World) -> tuple[ShareChange, ...]:
    """Return how shares differ by the submitted queues and nodes."""
    if without.shares is None:
        return ()
    with world.engine.session() as after:
        return tuple(share_changes(without.shares, cluster_shares(after)))


def _queues(world: World, submitted: Sequence[KubeObject]) -> Iterator[QueueOutcome]:
    """Yield the submitted queues with a problem, or with holdings beyond their limit.

    A limit only stops further pods: nothing is evicted for it.
    """
    names = {item.metadata.name for item in submitted if isinstance(item, Queue)}
    with world.engine.session() as session:
        shares = cluster_shares(session).queues
    for queue in shares:
        over = {
            resource: OverLimit(share.allocated + share.kept, share.limit)
            for resource, share in queue.resources.items()
            if share.limit is not None and share.allocated + share.kept > share.limit
        }
        if queue.name in names and (over or queue.problem):
            yield QueueOutcome(queue.name, queue.problem, over)


def _beyond(
    evictions: Sequence[RehearsedEviction], anyway: Collection[RehearsedEviction]
) -> tuple[RehearsedEviction, ...]:
    """Return the `evictions` that are not in `anyway`."""
    expected = {(e.eviction.namespace, e.eviction.pod, e.eviction.preemptor) for e in anyway}
    return tuple(
        each
        for each in evictions
        if (each.eviction.namespace, each.eviction.pod, each.eviction.preemptor) not in expected
    )


def _with_ends(
    play: _Play, evictions: Sequence[RehearsedEviction]
) -> tuple[RehearsedEviction, ...]:
    """Return `evictions` with `runs_again`. A pod that is created again keeps its name here."""
    tasks = play.world.engine.cluster.state.tasks.values()
    running = {(t.namespace, t.name) for t in tasks if t.status is TaskStatus.RUNNING}
    return tuple(
        replace(each, runs_again=(each.eviction.namespace, each.eviction.pod) in running)
        for each in evictions
    )


def _zones(pod: Pod) -> tuple[int, ...]:
    """Return the NUMA zones that the binder has recorded on `pod`."""
    text = pod.metadata.annotations.get(NUMA_ZONES_ANNOTATION)
    placement = numaplacement.from_record(text, pod.metadata.uid)
    return () if placement is None else tuple(placement.zones)


def _outcome(play: _Play, job: Job, workload: str, explanation: Explanation | None) -> JobOutcome:
    on_node = [task for task in job.tasks.values() if task.status is TaskStatus.RUNNING]
    on_node.sort(key=lambda task: task.order)
    waiting = job.waiting.total + job.gated_count + play.arrivals.missing(job)
    runs = job.is_scheduled and job.invalid is None and not (job.needs_none and waiting)
    return JobOutcome(
        job=job.key,
        workload=workload,
        queue=job.queue,
        runs=runs,
        since_cycle=play.since.get(job.key, 0) if runs else 0,
        pods=tuple(
            PlannedPod(task.name, task.node_name, _zones(play.world.pods[task.uid]))
            for task in on_node
        ),
        waiting_pods=waiting,
        later_stages=tuple(play.arrivals.after_end(job)),
        explanation=explanation,
    )
