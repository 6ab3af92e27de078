"""The cluster for an answer: a live cluster, or the beginning of a scenario.

In both cases it is a `ClusterSnapshot` and the scheduler's configuration; nothing is ever written.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from bindery.answers.errors import BadInputError
from bindery.answers.planner import Planner
from bindery.answers.wire import to_wire
from bindery.api.configuration import SchedulerConfiguration
from bindery.api.plugins import PluginConfigurationError
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.actions.registry import UnknownActionError
from bindery.scheduler.engine import Engine
from bindery.scheduler.usage.source import UsageSoFar
from bindery.scheduler.world import World


@dataclass(frozen=True)
class Source:
    """A snapshot of a cluster and the configuration of its scheduler."""

    snapshot: ClusterSnapshot
    configuration: SchedulerConfiguration
    now: datetime
    past: UsageSoFar | None = None
    """Past usage of queues."""
    planner: Planner | None = None
    """The scheduler of a live cluster; None for a scenario."""

    @property
    def lines(self) -> list[str]:
        """Lines of the answer about configuration and scheduler; none for a scenario."""
        return list(self.planner.lines()) if self.planner is not None else []

    @property
    def absence(self) -> str:
        """The reason why no scheduler leads; empty while one leads, or if it is unknown."""
        return self.planner.absence if self.planner is not None else ""

    @property
    def unserved(self) -> str:
        """Text that no scheduler serves this node pool, but other pools are served; else empty."""
        return self.planner.unserved if self.planner is not None else ""

    def described(self, answer: object) -> object:
        """Return `answer` in JSON form, with the scheduler of a live cluster."""
        if self.planner is None:
            return answer
        return {**to_wire(answer), "scheduler": self.planner.to_wire()}

    def in_pool(self, node_pool: str) -> "Source":
        """Return the same cluster for the scheduler of `node_pool`."""
        configuration = self.configuration.model_copy(update={"node_pool": node_pool})
        return replace(self, configuration=configuration)

    def later(self, seconds: float) -> "Source":
        """Return the same cluster `seconds` later."""
        return replace(self, now=self.now + timedelta(seconds=seconds))

    def engine(self, clock: Callable[[], float]) -> Engine:
        """Return the scheduler's engine with the cluster. `clock`: seconds since the epoch.

        Raises:
            BadInputError: the configuration names an action or a plugin that does not exist.
        """
        try:
            engine = Engine(self.configuration, clock)
        except (UnknownActionError, PluginConfigurationError) as error:
            raise BadInputError(f"the configuration: {error}") from error
        for item in (*self.snapshot.everything(), *self.snapshot.budgets):
            engine.cluster.apply(Change(EventType.ADDED, item, None))
        return engine

    def world(self) -> World:
        """Return the scheduler's view of the cluster for planning in memory.

        Raises:
            BadInputError: the configuration names an action or a plugin that does not exist.
        """
        objects = (
            *self.snapshot.everything(),
            *self.snapshot.budgets,
            *self.snapshot.workload_jobs,
        )
        try:
            world = World(objects, self.configuration, self.now.timestamp())
        except (UnknownActionError, PluginConfigurationError) as error:
            raise BadInputError(f"the configuration: {error}") from error
        world.remember(self.past)
        return world
