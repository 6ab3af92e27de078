"""The scheduling loop: waits for changes, runs a cycle, passes its results on.

Run by process.py while this process leads. The engine makes all decisions. Plans go to the writers
of commit/, which write in the background; all else that follows is in consequences.py.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.lease import Leadership
from bindery.scheduler.cache.feed import Feed
from bindery.scheduler.commit import metrics
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.evictor import Evictor
from bindery.scheduler.commit.stale import stale_requests
from bindery.scheduler.commit.writer import UNCONFIRMED_AFTER_S, RequestWriter
from bindery.scheduler.cycles import CycleHangsError, CycleRunner
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.planning.reports import CycleReport
from bindery.scheduler.planning.rounds import Deadline

POSTPONE_S = 10.0
"""Time without plans for a job after the API server refused its BindRequest."""
LEFT_ALONE_S = 60.0
"""Time without plans in a namespace after the API server reported that it is being deleted.

Its pods go within that time. If the namespace still exists, the next commit shows its state."""
CLEAR_EVERY_S = 1.0
"""Minimum time between two checks for stale requests, as each loops over all requests."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class FollowUps:
    """The functions that are called with the results of a cycle, beside the writers of plans."""

    cycle: Sequence[Callable[[CycleReport], None]]
    """Called after each cycle, in this order."""
    evictions: Sequence[Callable[[Sequence[Eviction]], None]]
    """Called with evictions that the API server has accepted."""
    commit: Callable[[StatementDraft], None]
    """Called with each commit, whose BindRequest may still be refused."""


class SchedulingLoop:
    """Plans in cycles, each run by `runner`. `clock` returns seconds since the epoch."""

    def __init__(
        self,
        engine: Engine,
        runner: CycleRunner,
        feed: Feed,
        writer: RequestWriter,
        evictor: Evictor,
        follow_ups: FollowUps,
        clock: Callable[[], float],
    ) -> None:
        self._engine, self._runner, self._feed = engine, runner, feed
        self._writer, self._evictor = writer, evictor
        self._follow_ups = follow_ups
        self._clock = clock
        self._free = asyncio.Lock()
        """Held while a cycle uses the engine."""
        self._clear_at_s = 0.0
        """Time of the next check for stale requests, by the event loop's clock."""
        self.cycles = 0

    async def run(self, leadership: Leadership) -> None:
        """Plan until cancelled."""
        # An earlier leader or term may not have written the status of all gangs.
        self._engine.cluster.changed_jobs.update(self._engine.cluster.groups)
        while True:
            await self._wait_for_change()
            if not leadership.is_valid():
                # The first cycle of a term waits for no change, and the term may be over by then.
                await asyncio.sleep(self._engine.configuration.cycle_seconds)
                continue
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
        configuration, runner = self._engine.configuration, self._runner
        started_s = runner.clock()
        self.cycles += 1
        deadline = Deadline(configuration.cycle_budget_seconds, runner.clock)
        cycle = self._engine.cycle(fencing_token, deadline=deadline)
        with self._feed.lent(), structlog.contextvars.bound_contextvars(cycle=self.cycles):
            try:
                await runner.run(cycle, self._submit, deadline, configuration.max_cycle_seconds)
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
        metrics.record(report, runner.clock() - started_s)
        for after_cycle in self._follow_ups.cycle:
            after_cycle(report)

    def _submit(self, draft: StatementDraft) -> None:
        self._writer.submit(draft)
        metrics.record_commit(draft, self._clock())
        self._follow_ups.commit(draft)
        _log.info(
            "statement committed",
            statement=draft.spec.id,
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
        self._note_evicted()

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

    def _note_evicted(self) -> None:
        """Record the executed evictions: in the gangs' history, as events and in metrics."""
        cluster = self._engine.cluster
        for eviction in self._evictor.evicted:
            self._engine.evicted(eviction)
            job = cluster.state.jobs.get(eviction.task.job)
            queue = job.queue if job is not None else ""
            metrics.EVICTED_PODS.labels(eviction.action, queue).inc()
        for after_evictions in self._follow_ups.evictions:
            after_evictions(self._evictor.evicted)
        self._evictor.evicted.clear()
