"""The scheduling loop: waits for changes, runs a cycle, passes its results to the writers.

Run by process.py while this process leads. The engine makes all decisions. The writers of commit/
and status/ write in the background.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.names import DEFAULT_QUEUE
from bindery.kube.events import EventRecorder, ObjectReference
from bindery.kube.lease import Leadership
from bindery.scheduler.background import CycleHangsError, CycleRunner
from bindery.scheduler.cache.feed import Feed
from bindery.scheduler.commit import metrics
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.evictor import Evictor
from bindery.scheduler.commit.stale import stale_requests
from bindery.scheduler.commit.writer import UNCONFIRMED_AFTER_S, RequestWriter
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.planning.reports import CycleReport
from bindery.scheduler.planning.rounds import Deadline
from bindery.scheduler.status import scaling
from bindery.scheduler.status.charge_records import ChargeRecorder
from bindery.scheduler.status.conditions import pending_writes
from bindery.scheduler.status.job_events import JobEvents
from bindery.scheduler.status.provisioning import arguments_of, steps
from bindery.scheduler.status.provisioning_writer import ProvisioningWriter
from bindery.scheduler.status.queue_metrics import QueueFigures
from bindery.scheduler.status.queue_writer import QueueStatusWriter
from bindery.scheduler.status.scaling_writer import ScalingWriter
from bindery.scheduler.status.standing_writer import StandingWriter
from bindery.scheduler.status.writer import StatusWriter

POSTPONE_S = 10.0
"""Time without plans for a job after the API server refused its BindRequest."""
LEFT_ALONE_S = 60.0
"""Time without plans in a namespace after the API server reported that it is being deleted.

Its pods go within that time. If the namespace still exists, the next commit shows its state."""
CLEAR_EVERY_S = 1.0
"""Minimum time between two checks for stale requests, as each loops over all requests."""
REQUEST_NODES_EVERY_S = 1.0
"""Minimum time between two looks at the ProvisioningRequests, as each loops over all gangs."""
SCALE_EVERY_S = 5.0
"""Minimum time between two looks at all waiting shares; autoscalers look every ten seconds."""
_FORGET_EVERY = 100
"""Cycles between two removals of memories about deleted objects; each loops over all objects."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class Writers:
    """The writers of the results of cycles."""

    requests: RequestWriter
    evictor: Evictor
    status: StatusWriter
    queues: QueueStatusWriter
    queue_figures: QueueFigures
    standings: StandingWriter
    records: ChargeRecorder
    provisioning: ProvisioningWriter
    scaling: ScalingWriter
    events: EventRecorder


class SchedulingLoop:
    """Runs cycles. `clock` returns seconds since the epoch."""

    def __init__(
        self,
        engine: Engine,
        feed: Feed,
        writers: Writers,
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._feed = feed
        self._writer, self._evictor = writers.requests, writers.evictor
        self._status, self._queues, self._events = writers.status, writers.queues, writers.events
        self._figures, self._standings = writers.queue_figures, writers.standings
        self._records = writers.records
        self._provisioning, self._scaling = writers.provisioning, writers.scaling
        self._clock = clock
        self._runner = CycleRunner(self._submit)
        self._free = asyncio.Lock()
        """Held while a cycle uses the engine."""
        self._job_events = JobEvents(engine.cluster)
        self._clear_at_s = 0.0
        """Time of the next check for stale requests, by the event loop's clock."""
        self._request_nodes_at_s = 0.0
        """Time of the next look at the ProvisioningRequests, by the event loop's clock."""
        self._scale_at_s = 0.0
        """Time of the next look at the scaling pods, by the event loop's clock."""
        self.cycles = 0

    async def run(self, leadership: Leadership) -> None:
        """Plan until cancelled."""
        # An earlier leader or term may not have written the status of all gangs.
        self._engine.cluster.changed_jobs.update(self._engine.cluster.groups)
        while True:
            await self._wait_for_change()
            if leadership.is_valid():
                try:
                    async with self._free:
                        await self._cycle(leadership.fencing_token)
                except CycleHangsError as error:
                    # Its thread still uses the cluster: the process ends, another one takes over.
                    _log.error("cycle hangs", after_s=error.after_s, stack=error.stack)
                    raise
                except Exception:
                    # An unexpected error, perhaps of a plugin. The open Statement has been undone.
                    metrics.CYCLE_ERRORS.inc()
                    _log.exception("cycle failed")
                    # The next cycle may fail in the same way.
                    await asyncio.sleep(self._engine.configuration.cycle_seconds)

    async def configure(self, configuration: SchedulerConfiguration) -> None:
        """Use `configuration` from the next cycle on."""
        async with self._free:
            self._engine.configure(configuration)

    def is_healthy(self) -> bool:
        """Return whether no cycle hangs."""
        return self._runner.is_healthy()

    async def _wait_for_change(self) -> None:
        configuration = self._engine.configuration
        if not self.cycles:
            return  # plan at once after the first listing
        if self._engine.report.is_cut:  # work is left over: it needs no change to continue
            await asyncio.sleep(configuration.min_cycle_seconds)
            return
        try:
            async with asyncio.timeout(configuration.cycle_seconds):
                await self._feed.changed.wait()
        except TimeoutError:
            pass
        # Cleared after the pause: changes during it are part of the next cycle.
        await asyncio.sleep(configuration.min_cycle_seconds)
        self._feed.changed.clear()

    async def _cycle(self, fencing_token: int) -> None:
        self._take_back_refused()
        self._clear_stale()
        started_s = time.perf_counter()
        self.cycles += 1
        configuration, runner = self._engine.configuration, self._runner
        deadline = Deadline(configuration.cycle_budget_seconds)
        cycle = self._engine.cycle(fencing_token, deadline=deadline)
        with self._feed.lent(), structlog.contextvars.bound_contextvars(cycle=self.cycles):
            try:
                await runner.run(cycle, deadline, configuration.max_cycle_seconds)
            except asyncio.CancelledError:
                # The commits of a finished cycle are submitted, so its evictions are too.
                if runner.has_finished:
                    self._evictor.submit(self._engine.report.evictions)
                raise
            finally:
                # Nobody writes these: as if the API server had refused them.
                for draft in runner.dropped:
                    self._engine.refused(draft)
                self._writer.abandon()
        report = self._engine.report
        self._evictor.submit(report.evictions)
        metrics.record(report, time.perf_counter() - started_s)
        self._tell(report)

    def _submit(self, draft: StatementDraft) -> None:
        self._writer.submit(draft)
        metrics.record_commit(draft, self._clock())
        _log.info(
            "statement committed",
            statement=draft.spec.statement.id,
            namespace=draft.namespace,
            gang=draft.spec.pod_group.name if draft.spec.pod_group else None,
            pods=len(draft.tasks),
        )

    def _take_back_refused(self) -> None:
        now = self._clock()
        for refused in self._writer.refused:
            self._engine.refused(refused.draft)
            if refused.problem:  # else another scheduler has committed the gang: no delay
                for job in {task.job for task in refused.draft.tasks}:
                    text = f"its BindRequest could not be created: {refused.problem}"
                    self._engine.cluster.failures.postpone(job, now + POSTPONE_S, text)
        self._writer.refused.clear()
        for namespace in self._writer.ending:
            self._engine.cluster.failures.leave_namespace(namespace, now + LEFT_ALONE_S)
        self._writer.ending.clear()
        for request in self._writer.missing:
            self._feed.when_pods_are_shown(partial(self._engine.cluster.forget, request))
        self._writer.missing.clear()
        for plan in self._evictor.refused:
            self._engine.dropped(plan)
        self._evictor.refused.clear()
        self._tell_evicted()

    def _clear_stale(self) -> None:
        loop_s = asyncio.get_running_loop().time()
        if loop_s < self._clear_at_s:
            return
        self._clear_at_s = loop_s + CLEAR_EVERY_S
        cluster, now = self._engine.cluster, self._clock()
        timeout_s = self._engine.configuration.bind_request.timeout_seconds
        self._writer.clear(stale_requests(cluster, now, timeout_s))
        self._writer.look_up(
            key
            for key, assumption in cluster.holds.assumed.items()
            if now - assumption.since > UNCONFIRMED_AFTER_S
        )

    def _tell(self, report: CycleReport) -> None:
        """Offer status writes to the writers, and write events about problems and changes."""
        cluster = self._engine.cluster
        hides_shares = scaling.arguments_of(self._engine.configuration) is not None
        for write in pending_writes(cluster, report, self._clock(), hides_shares=hides_shares):
            self._status.offer(write)
        cluster.changed_jobs.clear()
        # The status of these jobs depends on the outcome of the evictions: written next time.
        for eviction in report.evictions:
            cluster.changed_jobs.update((eviction.task.job, eviction.preemptor))
        self._records.offer(cluster.unrecorded())
        self._request_nodes(report)
        self._scale(report)
        self._queues.look(report)
        self._standings.look(cluster, report)
        self._figures.note(cluster.state, report.fair, self._clock())
        for problem in cluster.problems:
            meta = problem.meta
            reference = ObjectReference(
                problem.api_version, problem.kind, meta.namespace, meta.name, meta.uid
            )
            self._events.warning(reference, problem.reason, problem.message)
            _log.warning("object unusable", kind=problem.kind, name=meta.name, why=problem.message)
        cluster.problems.clear()
        self._tell_defects()
        metrics.UNSTARTED_PODS.set(len(cluster.starting.overdue))
        for key in report.took_too_long:
            _log.warning("job set aside: planning it took too long", job=str(key))
        for occurrence in self._job_events.of_cycle(report, self._clock()):
            self._events.record(occurrence)
        if self.cycles % _FORGET_EVERY == 1:
            self._forget_gone()

    def _request_nodes(self, report: CycleReport) -> None:
        """Offer the changes of ProvisioningRequests to their writer."""
        arguments = arguments_of(self._engine.configuration)
        loop_s = asyncio.get_running_loop().time()
        if arguments is not None and loop_s >= self._request_nodes_at_s:
            self._request_nodes_at_s = loop_s + REQUEST_NODES_EVERY_S
            self._provisioning.offer(steps(self._engine.cluster, report, arguments, self._clock()))

    def _scale(self, report: CycleReport) -> None:
        """Offer the demand for scaling pods to their writer."""
        configuration, cluster = self._engine.configuration, self._engine.cluster
        arguments = scaling.arguments_of(configuration)
        if arguments is None:
            return
        covered = self._scaling.covered
        # At once: the GPU of a placed share would be taken, and its scaling pod ask for another.
        self._scaling.let_go(uid for uid in covered if not scaling.waits(cluster, uid))
        loop_s = asyncio.get_running_loop().time()
        if loop_s >= self._scale_at_s:
            self._scale_at_s = loop_s + SCALE_EVERY_S
            self._scaling.offer(scaling.demand(cluster, report, configuration, arguments, covered))

    def _tell_defects(self) -> None:
        """Count the unexpected errors of objects, and log each new one."""
        for defect in self._engine.cluster.defects.take():
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

    def _tell_evicted(self) -> None:
        """Record the executed evictions: in the gangs' history, as events and in metrics."""
        cluster = self._engine.cluster
        for eviction in self._evictor.evicted:
            self._engine.evicted(eviction)
            job = cluster.state.jobs.get(eviction.task.job)
            queue = job.queue if job is not None else ""
            metrics.EVICTED_PODS.labels(eviction.action, queue).inc()
        for occurrence in self._job_events.of_evictions(self._evictor.evicted):
            self._events.record(occurrence)
        self._evictor.evicted.clear()

    def _forget_gone(self) -> None:
        cluster = self._engine.cluster
        metrics.drop_queues({*cluster.queues, DEFAULT_QUEUE})
        alive = {Uid(meta.metadata.uid) for meta in cluster.groups.values()}
        alive |= set(cluster.state.tasks)
        self._status.forget(self._status.known - alive)
        self._job_events.keep(alive)
