"""The scheduler process: connects the engine with the API server.

`bindery scheduler run` calls `run`. A standby watches, so it is up to date when it takes over. A
process that wins the Lease at its first attempt announces its term before it lists anything, so
that it has to list only once. The loop runs only while this process leads. A new leader needs only
the watches, as the commits of an earlier leader are BindRequests.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, Self

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from bindery import __version__
from bindery.api.names import scheduler_lease
from bindery.kube import publication
from bindery.kube.client import Client
from bindery.kube.events.recorder import EventRecorder
from bindery.kube.lease import LeaderElector, Leadership
from bindery.observability.health import HealthServer
from bindery.observability.listening import Listening
from bindery.scheduler.background import BackgroundRunner
from bindery.scheduler.cache.feed import Feed
from bindery.scheduler.commit import metrics
from bindery.scheduler.commit.evictor import Evictor
from bindery.scheduler.commit.fence import announce
from bindery.scheduler.commit.writer import RequestWriter
from bindery.scheduler.configuration import ConfigurationFile
from bindery.scheduler.consequences import (
    Forgetting,
    GangEvents,
    GangStatuses,
    NodeRequests,
    ObjectProblems,
    ScalingDemand,
)
from bindery.scheduler.cycles import CycleRunner
from bindery.scheduler.engine import Engine
from bindery.scheduler.history.keeping import HistoryKeeping
from bindery.scheduler.loop import FollowUps, SchedulingLoop
from bindery.scheduler.status.charge_records import ChargeRecorder
from bindery.scheduler.status.nominations import promised
from bindery.scheduler.status.provisioning_writer import ProvisioningWriter
from bindery.scheduler.status.queue_metrics import QueueFigures
from bindery.scheduler.status.queue_writer import QueueStatusWriter
from bindery.scheduler.status.queues import QueueStatuses
from bindery.scheduler.status.scaling_writer import ScalingWriter
from bindery.scheduler.status.standing_writer import StandingWriter
from bindery.scheduler.status.writer import StatusWriter
from bindery.scheduler.usage import keeping
from bindery.scheduler.usage.metrics import QueueCollector

COMPONENT: Final = "bindery-scheduler"

_DRAIN_S = 5.0
"""Time that an ending process waits for commits in flight, in seconds."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class SchedulerOptions:
    """The start options of the process."""

    configuration_file: ConfigurationFile
    kubeconfig: Path | None
    identity: str
    """Unique to this process; the holder in the Lease."""
    listening: Listening


class _Writer(Protocol):
    """A writer that works in the background while this process leads."""

    async def run(self, leadership: Leadership) -> None:
        """Write until cancelled."""


@dataclass(frozen=True)
class _Results:
    """The writers of statuses, events and other results of cycles, without the plans."""

    engine: Engine
    events: EventRecorder
    clock: Callable[[], float]
    statuses: StatusWriter
    queues: QueueStatusWriter
    standings: StandingWriter
    records: ChargeRecorder
    nodes: ProvisioningWriter
    scaling: ScalingWriter
    figures: QueueFigures
    history: HistoryKeeping

    @classmethod
    def of(cls, client: Client, engine: Engine, events: EventRecorder) -> Self:
        """Make the writers."""
        clock = client.environment.now_s
        node_pool = engine.configuration.node_pool
        return cls(
            engine,
            events,
            clock,
            StatusWriter(client, clock, lambda: engine.cluster.holds.has_live),
            QueueStatusWriter(client, QueueStatuses(engine.cluster, node_pool), clock),
            StandingWriter(client, clock),
            ChargeRecorder(client, clock),
            ProvisioningWriter(client, events, clock),
            ScalingWriter(client, events, clock),
            QueueFigures(),
            HistoryKeeping(engine.configuration, engine.cluster, client, clock),
        )

    def follow_ups(self, evictor: Evictor) -> FollowUps:
        """Return the functions that are called after each cycle, in this order."""
        engine, cluster, clock = self.engine, self.engine.cluster, self.clock
        gang_events = GangEvents(engine, self.events, clock)
        after_cycle = (
            GangStatuses(engine, self.statuses, lambda: evictor.undecided, clock).after_cycle,
            lambda _: self.records.offer(cluster.unrecorded()),
            NodeRequests(engine, self.nodes, clock).after_cycle,
            ScalingDemand(engine, self.scaling).after_cycle,
            self.queues.look,
            partial(self.standings.look, cluster),
            lambda report: self.figures.note(cluster.state, report.fair, clock()),
            ObjectProblems(cluster, self.events).after_cycle,
            gang_events.after_cycle,
            Forgetting(cluster, self.statuses, gang_events).after_cycle,
            self.history.after_cycle,
        )
        evictions = gang_events.after_evictions, self.history.evicted
        return FollowUps(after_cycle, evictions, self.history.committed)

    def writers(self) -> Sequence[_Writer]:
        """Return the writers that run during a term."""
        return (
            *(self.statuses, self.queues, self.standings),
            *(self.records, self.nodes, self.scaling),
        )


async def run(options: SchedulerOptions) -> None:
    """Schedule until cancelled."""
    agent = f"{COMPONENT}/{__version__}"
    async with Client.connect(options.kubeconfig, user_agent=agent) as client:
        await Scheduler(options, client, BackgroundRunner()).run()


class Scheduler:
    """One scheduler process. `registry` gets the series of queues, and is what it exports."""

    def __init__(
        self,
        options: SchedulerOptions,
        client: Client,
        runner: CycleRunner,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        configuration = options.configuration_file.current
        clock = client.environment.now_s
        self._options, self._client, self._registry = options, client, registry
        self._election = configuration.leader_election
        self._node_pool = configuration.node_pool
        self._lease_name = scheduler_lease(self._node_pool)
        self._engine = engine = Engine(configuration, clock, runner.stopwatch)
        self._feed = feed = Feed(client, engine.cluster, engine.watched_resources())
        self._events = EventRecorder(client, COMPONENT)
        self._writer = RequestWriter(
            client, feed.changed.set, lambda: engine.configuration.bind_request
        )
        self._evictor = Evictor(
            client,
            self._events,
            feed.changed.set,
            engine.cluster.budgets,
            partial(promised, engine.cluster),
        )
        self._results = _Results.of(client, engine, self._events)
        self._usage = keeping.keeper(configuration, engine.past, client, self._events, clock)
        follow_ups = self._results.follow_ups(self._evictor)
        self._loop = SchedulingLoop(
            engine, runner, feed, self._writer, self._evictor, follow_ups, clock
        )

    async def run(self) -> None:
        """Take part in the leader election, and plan while leading, until cancelled."""
        metrics.begin(self._feed.kinds())
        file, publisher = self._options.configuration_file, publication.Publisher()
        elector = LeaderElector(
            self._client,
            name=self._lease_name,
            identity=self._options.identity,
            configuration=self._election,
            annotations=lambda: publisher.annotations(self._engine.configuration, file.problem),
        )
        liveness = {"cycles end": self._loop.is_healthy}
        checks = {
            "watches synced": self._feed.is_synced,
            "watches up to date": self._feed.is_healthy,
        }
        server = HealthServer(
            self._options.listening, checks, liveness=liveness, registry=self._registry
        )
        async with server, _together(self._feed.run(), self._events.run(), self._reload()):
            await elector.run(self._lead, stand_by=self._feed.start)

    async def _lead(self, leadership: Leadership) -> None:
        await announce(
            self._client,
            self._lease_name,
            self._election.namespace,
            self._node_pool,
            leadership.fencing_token,
        )
        await self._feed.catch_up()  # with older state, room could be used twice
        self._writer.begin(leadership)
        self._evictor.begin(leadership)
        metrics.LEADING.set(1)
        try:
            async with self._usage.kept(leadership), self._results.history.kept(leadership):
                # Within the term, so that a write that is being retried ends with it.
                writing = [each.run(leadership) for each in self._results.writers()]
                with self._exported():
                    async with _together(*writing):
                        await self._loop.run(leadership)
        finally:
            metrics.end_term()
            # Commits are finished: an incomplete Statement would hold room until it is stale.
            await self._evictor.stop()
            await self._writer.stop(_DRAIN_S)

    @contextlib.contextmanager
    def _exported(self) -> Iterator[None]:
        """Export the series of queues at /metrics while this process leads."""
        collectors = QueueCollector(self._engine.past), self._results.figures
        for collector in collectors:
            self._registry.register(collector)
        try:
            yield
        finally:
            for collector in collectors:
                self._registry.unregister(collector)

    async def _reload(self) -> None:
        """Apply each change of the configuration file."""
        file = self._options.configuration_file
        async for configuration in file.changes():
            await self._loop.configure(configuration)
            self._usage.configure(configuration.usage)
            self._results.history.configure(configuration.history)
            await self._feed.follow(self._engine.watched_resources())
            _log.info("configuration changed", file=str(file.path))


@contextlib.asynccontextmanager
async def _together(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` concurrently with the body. An error ends all; the end of the body cancels."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in work]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
