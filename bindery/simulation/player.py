"""Play a trace: arrivals, cycles, bindings, ends and evictions in the order of a virtual clock.

The engine is the scheduler's own, and a cycle begins as the scheduler's loop begins one: shortly
after something has changed. While jobs wait and nothing changes, cycles follow in growing
intervals, as some decisions depend on time alone. No randomness: the same trace gives the same
record.
"""

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import DEFAULT_QUEUE
from bindery.kube.objects.watched import Pod
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey, TaskStatus, Uid
from bindery.scheduler.world import Bound
from bindery.simulation.cluster import SimulatedCluster
from bindery.simulation.fragmentation import FragmentationMeter
from bindery.simulation.record import (
    EvictionRecord,
    FragmentationSample,
    JobRecord,
    QueueSample,
    Record,
    Sample,
)
from bindery.simulation.trace import Arrival, GpuReader, Trace

_FIRST_PAUSE_S: Final = 15.0
_LAST_PAUSE_S: Final = 3600.0
"""Without events, cycles follow after pauses from the first to the last of these."""
_FRAGMENTATION_SAMPLES: Final = 200

Progress = Callable[[int, float], None]
"""Gets the number of arrivals so far and the time in seconds after the start of the trace."""


@dataclass(frozen=True)
class Settings:
    """How a trace is played."""

    window_s: float | None = None
    """What happens within so long after an event belongs to the same cycle; None: as in the
    scheduler's configuration, `minCycleSeconds`."""
    grace_s: float = 30.0
    """Time from the eviction of a pod until it has gone."""
    until_s: float = math.inf
    """Time of the end, in seconds after the start of the trace."""


_DEFAULT: Final = Settings()


class _Kind(IntEnum):
    """Kinds of events; events of one time happen in this order."""

    END = 0
    RELEASE = 1
    ARRIVE = 2


class _Event(NamedTuple):
    at_s: float
    kind: _Kind
    number: int
    """Of equal times and kinds, the event that was planned first comes first."""
    subject: Uid | Arrival


def play(
    trace: Trace,
    configuration: SchedulerConfiguration,
    settings: Settings = _DEFAULT,
    progress: Progress = lambda arrivals, now_s: None,  # noqa: ARG005
) -> Record:
    """Return the record of `trace` under `configuration`.

    Raises:
        PluginConfigurationError: a configured plugin cannot be used.
        UnknownActionError: the configuration names an action that does not exist.
    """
    return _Player(trace, configuration, settings, progress).run()


class _Player:
    """One simulation."""

    def __init__(
        self,
        trace: Trace,
        configuration: SchedulerConfiguration,
        settings: Settings,
        progress: Progress,
    ) -> None:
        self._trace, self._settings, self._progress = trace, settings, progress
        window_s = settings.window_s
        self._window_s = configuration.min_cycle_seconds if window_s is None else window_s
        self._cluster = SimulatedCluster(configuration, trace.start_s)
        self._events: list[_Event] = []
        self._planned = 0
        """Number of events that have been planned."""
        self._arrived = 0
        self._runtimes: dict[Uid, float] = {}
        """Pod -> the time that it runs by the trace; pods may declare a shorter time."""
        self._bound_s: dict[Uid, float] = {}
        """Running pod -> time of its binding."""
        self._left: dict[JobKey, int] = {}
        """Job -> its pods that have not ended."""
        self._reader = GpuReader()
        self._record = Record(trace.name, 0, 0.0, 0.0)
        self._next_measure_s = 0.0
        self._begin()
        pods = [pod for arrival in trace.arrivals for pod in arrival.pods]
        pods += list(self._cluster.pods.values())
        self._meter = FragmentationMeter(self._cluster.engine, pods)
        span_s = max((arrival.at_s for arrival in trace.arrivals), default=0.0)
        self._measure_every_s = max(span_s / _FRAGMENTATION_SAMPLES, self._window_s)

    def run(self) -> Record:
        """Play all events."""
        if self._cluster.engine.cluster.state.waiting:  # as the scheduler does when it starts
            self._happen_until(self._window_s)
            self._cycle()
        pause_s = _FIRST_PAUSE_S
        while True:
            now_s = self._now_s
            next_s = self._events[0].at_s if self._events else math.inf
            is_waiting = bool(self._cluster.engine.cluster.state.waiting)
            if is_waiting and now_s + pause_s < next_s and pause_s <= _LAST_PAUSE_S:
                next_s = now_s + pause_s
                pause_s *= 2
            else:
                pause_s = _FIRST_PAUSE_S
            if next_s >= self._settings.until_s or math.isinf(next_s):
                break
            self._happen_until(next_s + self._window_s)
            self._cycle()
        until_s = self._settings.until_s
        self._record.end_s = self._now_s if math.isinf(until_s) else until_s
        self._measure()
        return self._record

    # -- events ----------------------------------------------------------------------------------

    @property
    def _now_s(self) -> float:
        # Floats of this size have microseconds and no more.
        return round(self._cluster.clock.now - self._trace.start_s, 6)

    def _begin(self) -> None:
        """Create the objects of the beginning, and plan the arrivals."""
        cluster, record, trace = self._cluster, self._record, self._trace
        for item in trace.beginning:
            cluster.add(item)
        state = cluster.engine.cluster.state
        record.nodes = len(state.nodes.rows)
        offered = cluster.offered()
        record.capacity_gpus = offered.get("gpu", 0.0)
        record.capacity_cpu = offered.get("cpu", 0.0)
        for uid, pod in cluster.pods.items():
            self._note_job(self._job_key(pod), self._reader.gpus(pod))
            if not pod.spec.node_name or pod.status.phase != "Running":
                continue
            self._record.jobs[self._job_key(pod)].started_s = 0.0
            bound_at = state.tasks[uid].bound_at if uid in state.tasks else None
            self._bound_s[uid] = 0.0 if bound_at is None else bound_at - trace.start_s
            self._plan_end(uid)
        for bound in cluster.bind_requested():
            self._note_bound(bound)
        for uid, task in list(state.tasks.items()):
            if task.status is TaskStatus.RELEASING:
                self._plan(max(0.0, task.gone_by - trace.start_s), _Kind.RELEASE, uid)
        for arrival in trace.arrivals:
            self._plan(arrival.at_s, _Kind.ARRIVE, arrival)

    def _plan(self, at_s: float, kind: _Kind, subject: Uid | Arrival) -> None:
        heapq.heappush(self._events, _Event(at_s, kind, self._planned, subject))
        self._planned += 1

    def _plan_end(self, uid: Uid) -> None:
        state = self._cluster.engine.cluster.state
        task = state.tasks.get(uid)
        if task is None:  # the scheduler does not know it, such as a pod of an unknown node
            return
        declared_s = min(task.runtime_s, state.jobs[task.job].runtime_s)
        runtime_s = min(self._runtimes.get(uid, math.inf), declared_s)
        if math.isfinite(runtime_s):
            self._plan(max(self._now_s, self._bound_s[uid] + runtime_s), _Kind.END, uid)

    def _happen_until(self, end_s: float) -> None:
        """Let all events up to `end_s` happen, and set the clock to `end_s`."""
        while self._events and self._events[0].at_s <= end_s:
            event = heapq.heappop(self._events)
            self._set_clock(event.at_s)
            if event.kind is _Kind.ARRIVE:
                assert isinstance(event.subject, Arrival)
                self._arrive(event.subject)
            else:
                assert not isinstance(event.subject, Arrival)
                self._leave(event.subject, has_ended=event.kind is _Kind.END)
        self._set_clock(end_s)

    def _set_clock(self, at_s: float) -> None:
        clock = self._cluster.clock
        clock.now = max(clock.now, self._trace.start_s + at_s)

    def _arrive(self, arrival: Arrival) -> None:
        if arrival.group is not None:
            self._cluster.add(arrival.group)
        for pod in arrival.pods:
            self._runtimes[Uid(pod.metadata.uid)] = arrival.runtime_s
            self._cluster.add(pod)
            self._note_job(self._job_key(pod), 0.0)
        self._record.jobs[self._job_key(arrival.pods[0])].gpus += arrival.gpus
        self._arrived += 1

    def _job_key(self, pod: Pod) -> JobKey:
        return self._cluster.engine.cluster.job_key(pod)

    def _note_job(self, key: JobKey, gpus: float) -> None:
        """Count one more pod of a job."""
        job = self._record.jobs.get(key)
        if job is None:
            state = self._cluster.engine.cluster.state
            queue = state.jobs[key].queue if key in state.jobs else DEFAULT_QUEUE
            job = self._record.jobs[key] = JobRecord(queue, 0, 0.0, self._now_s)
        job.pods += 1
        job.gpus += gpus
        self._left[key] = self._left.get(key, 0) + 1

    def _leave(self, uid: Uid, *, has_ended: bool) -> None:
        """Let a pod end, or go after its eviction."""
        cluster = self._cluster
        pod = cluster.pods.get(uid)
        if pod is None or (has_ended and not cluster.is_running(uid)):
            return  # it was evicted before its end
        key = self._job_key(pod)
        self._bound_s.pop(uid, None)
        if has_ended:
            cluster.end(uid)
        else:
            reborn = cluster.remove(uid)
            if reborn is not None:
                self._runtimes[Uid(reborn.metadata.uid)] = self._runtimes.get(uid, math.inf)
                return
        self._left[key] -= 1
        if not self._left[key]:
            self._record.jobs[key].ended_s = self._now_s

    # -- cycles ----------------------------------------------------------------------------------

    def _cycle(self) -> None:
        cluster, record = self._cluster, self._record
        bound = cluster.cycle()
        record.cycles += 1
        for each in bound:
            self._note_bound(each)
        for eviction in cluster.engine.report.evictions:
            self._evict(eviction)
        problems = cluster.engine.cluster.problems
        for problem in problems:
            meta = problem.meta
            record.problems[f"{problem.kind} {meta.namespace}/{meta.name}"] = problem.message
        problems.clear()
        cluster.engine.cluster.changed_jobs.clear()
        record.samples.append(self._sample())
        if self._now_s >= self._next_measure_s:
            self._measure()
            self._next_measure_s = self._now_s + self._measure_every_s
        self._progress(self._arrived, self._now_s)

    def _note_bound(self, bound: Bound) -> None:
        job = self._record.jobs[bound.job]
        if job.started_s is None:
            job.started_s = self._now_s
        job.nodes[self._cluster.pods[bound.uid].metadata.name] = bound.node
        self._bound_s[bound.uid] = self._now_s
        self._plan_end(bound.uid)

    def _evict(self, eviction: Eviction) -> None:
        task, at_s = eviction.task, self._now_s
        gone_s = at_s + self._settings.grace_s
        if not self._cluster.begin_eviction(eviction, self._trace.start_s + gone_s):
            return
        self._plan(gone_s, _Kind.RELEASE, task.uid)
        gpus = self._reader.gpus(self._cluster.pods[task.uid])
        ran_s = at_s - self._bound_s.get(task.uid, at_s)
        self._record.jobs[task.job].evictions += 1
        self._record.evictions.append(
            EvictionRecord(at_s, eviction.action, task.queue, bool(eviction.moves_to), ran_s * gpus)
        )

    # -- measures --------------------------------------------------------------------------------

    def _sample(self) -> Sample:
        state = self._cluster.engine.cluster.state
        held = self._cluster.held()
        waiting = sum(len(job.pending) for job in state.waiting.values())
        return Sample(
            at_s=self._now_s,
            gpus=held.get("gpu", 0.0),
            cpu=held.get("cpu", 0.0),
            waiting_pods=waiting,
            queues=dict(self._queue_samples()),
        )

    def _queue_samples(self) -> Iterator[tuple[str, QueueSample]]:
        engine = self._cluster.engine
        table, shares = engine.cluster.state.queues, engine.report.fair_shares
        parents = {entry.parent for entry in table.entries}
        for entry in table.entries:
            if entry.name in parents:  # its GPUs are those of the queues below
                continue
            row = table.rows[entry.name]
            held = table.axis.in_wholes(table.allocated[:, row]).get("gpu", 0.0)
            waits = table.axis.in_wholes(table.pending[:, row]).get("gpu", 0.0)
            fair = shares.get(entry.name, {}).get("gpu", 0.0)
            if held or waits or entry.exists:
                yield entry.name, QueueSample(held, held + waits, fair)

    def _measure(self) -> None:
        lost = self._meter.lost_gpus()
        self._record.fragmentation.append(FragmentationSample(self._now_s, lost))
