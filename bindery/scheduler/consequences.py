"""What follows from a cycle besides its commits: statuses, events, metrics, requests for nodes.

`process` lists the consequences, and `loop` calls each of them after each cycle. Each has its own
cadence, reads the cluster and the report, and passes what it finds to a writer, which works in the
background.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

import structlog

from bindery.api.names import DEFAULT_QUEUE
from bindery.kube.events.recorder import EventRecorder, ObjectReference
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.commit import metrics
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey, Uid
from bindery.scheduler.planning.reports import CycleReport
from bindery.scheduler.status import provisioning, scaling
from bindery.scheduler.status.conditions import pending_writes
from bindery.scheduler.status.job_events import JobEvents
from bindery.scheduler.status.provisioning_writer import ProvisioningWriter
from bindery.scheduler.status.scaling_writer import ScalingWriter
from bindery.scheduler.status.writer import StatusWriter

Clock = Callable[[], float]

REQUEST_NODES_EVERY_S: Final = 1.0
"""Minimum time between two looks at the ProvisioningRequests, as each loops over all gangs."""
SCALE_EVERY_S: Final = 5.0
"""Minimum time between two looks at all waiting shares; autoscalers look every ten seconds."""
_FORGET_EVERY: Final = 100
"""Cycles between two removals of memories about deleted objects; each loops over all objects."""

_log = structlog.get_logger()


class GangStatuses:
    """The statuses of gangs that a cycle changed."""

    def __init__(
        self,
        engine: Engine,
        writer: StatusWriter,
        undecided: Callable[[], Collection[JobKey]],
        clock: Clock,
    ) -> None:
        """`undecided`: returns the jobs whose evictions of earlier cycles may still be refused."""
        self._engine, self._writer, self._clock = engine, writer, clock
        self._undecided = undecided

    def after_cycle(self, report: CycleReport) -> None:
        """Offer the statuses to the writer."""
        cluster = self._engine.cluster
        hides_shares = scaling.arguments_of(self._engine.configuration) is not None
        undecided = self._undecided()
        cluster.changed_jobs.update(self._writer.take_lost_groups())
        writes = pending_writes(
            cluster, report, self._clock(), undecided=undecided, hides_shares=hides_shares
        )
        for write in writes:
            self._writer.offer(write)
        cluster.changed_jobs.clear()
        # The status of these jobs depends on the outcome of the evictions: written next time.
        cluster.changed_jobs.update(undecided)
        for eviction in report.evictions:
            cluster.changed_jobs.update((eviction.task.job, eviction.preemptor))


class NodeRequests:
    """The ProvisioningRequests of gangs. `clock` returns seconds since the epoch."""

    def __init__(self, engine: Engine, writer: ProvisioningWriter, clock: Clock) -> None:
        self._engine, self._writer, self._clock = engine, writer, clock
        self._due_s = 0.0
        """Time of the next look, by the event loop's clock."""

    def after_cycle(self, report: CycleReport) -> None:
        """Offer the changes of ProvisioningRequests to the writer."""
        arguments = provisioning.arguments_of(self._engine.configuration)
        now_s = asyncio.get_running_loop().time()
        if arguments is not None and now_s >= self._due_s:
            self._due_s = now_s + REQUEST_NODES_EVERY_S
            cluster = self._engine.cluster
            self._writer.offer(provisioning.steps(cluster, report, arguments, self._clock()))


class ScalingDemand:
    """The scaling pods, which request whole GPUs for waiting shares."""

    def __init__(self, engine: Engine, writer: ScalingWriter) -> None:
        self._engine, self._writer = engine, writer
        self._due_s = 0.0
        """Time of the next look, by the event loop's clock."""

    def after_cycle(self, report: CycleReport) -> None:
        """Offer the demand to the writer."""
        configuration, cluster = self._engine.configuration, self._engine.cluster
        arguments = scaling.arguments_of(configuration)
        if arguments is None:
            return
        covered = self._writer.covered
        # At once: the GPU of a placed share would be taken, and its scaling pod ask for another.
        self._writer.let_go(uid for uid in covered if not scaling.waits(cluster, uid))
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._due_s:
            self._due_s = now_s + SCALE_EVERY_S
            self._writer.offer(scaling.demand(cluster, report, configuration, arguments, covered))


class GangEvents:
    """The events of gangs: after each cycle, and after evictions."""

    def __init__(self, engine: Engine, recorder: EventRecorder, clock: Clock) -> None:
        self._recorder, self._clock = recorder, clock
        self._events = JobEvents(engine.cluster)

    def after_cycle(self, report: CycleReport) -> None:
        """Record what the cycle changed for gangs."""
        for key in report.took_too_long:
            _log.warning("job set aside: planning it took too long", job=str(key))
        for occurrence in self._events.of_cycle(report, self._clock()):
            self._recorder.record(occurrence)

    def after_evictions(self, evictions: Sequence[Eviction]) -> None:
        """Record executed evictions."""
        for occurrence in self._events.of_evictions(evictions):
            self._recorder.record(occurrence)

    def keep(self, alive: set[Uid]) -> None:
        """Forget all gangs and pods that are not in `alive`."""
        self._events.keep(alive)


class ObjectProblems:
    """Events, logs and metrics of objects that cannot be used."""

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        self._cluster, self._recorder = cluster, recorder

    def after_cycle(self, _: CycleReport) -> None:
        """Record what was found since the last cycle."""
        for problem in self._cluster.problems:
            meta = problem.meta
            reference = ObjectReference(
                problem.api_version, problem.kind, meta.namespace, meta.name, meta.uid
            )
            self._recorder.warning(reference, problem.reason, problem.message)
            _log.warning("object unusable", kind=problem.kind, name=meta.name, why=problem.message)
        self._cluster.problems.clear()
        self._count_defects()
        metrics.UNSTARTED_PODS.set(len(self._cluster.starting.overdue))

    def _count_defects(self) -> None:
        """Count the unexpected errors of objects, and log each new one."""
        for defect in self._cluster.defects.take():
            metrics.OBJECT_ERRORS.labels(defect.stage, defect.subject.kind).inc()
            if defect.trace:
                _log.error(
                    "object failed",
                    stage=defect.stage.value,
                    kind=defect.subject.kind,
                    namespace=defect.subject.namespace,
                    name=defect.subject.name,
                    error=defect.text,
                    traceback=defect.trace,
                )


class Forgetting:
    """Removes memories about deleted objects from time to time."""

    def __init__(self, cluster: Cluster, statuses: StatusWriter, events: GangEvents) -> None:
        self._cluster, self._statuses, self._events = cluster, statuses, events
        self._cycles = 0

    def after_cycle(self, _: CycleReport) -> None:
        """Forget deleted objects, once in `_FORGET_EVERY` cycles."""
        self._cycles += 1
        if self._cycles % _FORGET_EVERY != 1:
            return
        cluster = self._cluster
        metrics.drop_queues({*cluster.queues, DEFAULT_QUEUE})
        alive = {Uid(meta.metadata.uid) for meta in cluster.groups.values()}
        alive |= set(cluster.state.tasks)
        self._statuses.forget(self._statuses.known - alive)
        self._events.keep(alive)
