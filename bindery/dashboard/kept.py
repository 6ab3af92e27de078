"""The engine that pictures are planned with, kept from one plan to the next.

It is filled once, and then follows the watches as the scheduler's own does: filling an engine takes
several times as long as a plan. `state` calls it; `live` passes the changes on.
"""

import gc
from collections.abc import Callable
from functools import partial

from bindery.answers.source import Source
from bindery.dashboard.facts import Picture
from bindery.dashboard.planned import picture_of
from bindery.kube.objects.watched import KubeObject
from bindery.kube.objects.workloads import WorkloadJob
from bindery.kube.watches.store import Change
from bindery.scheduler.cache.feed import statement_changes
from bindery.scheduler.cache.inbox import Inbox
from bindery.scheduler.engine import Engine
from bindery.scheduler.usage.source import past_usage
from bindery.scheduler.world import Clock

_SPARED_S = 1.0
"""How long pods are spared that a budget protects: for the plan at hand."""


class KeptEngine:
    """An engine with the cluster of a reader. `clock` returns seconds since the epoch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._read_clock = clock
        self._clock = Clock(0.0)
        self._engine: Engine | None = None
        """None before the first plan, and after one that has failed."""
        self._inbox = Inbox()
        self.lent = self._inbox.lent
        """Within the block, `picture` may run in a thread, and changes wait."""

    def take(self, change: Change[KubeObject]) -> None:
        """Follow a change of the cluster, at once or after the plan that is under way."""
        self._inbox.put(partial(self._apply, change))

    def picture(self, source: Source, version: int) -> Picture:
        """Return the picture of the cluster in `source`, as it was when the engine was lent.

        Raises:
            BadInputError: the configuration cannot be used.
        """
        engine, self._engine = self._engine, None
        if engine is not None and engine.configuration != source.configuration:
            engine = None
        self._clock.now = source.now.timestamp()
        if engine is None:
            gc.collect()  # an engine that is dropped refers to itself, and there is room for one
            engine = source.engine(self._clock)
        engine.past = past_usage(source.configuration.usage, source.past)
        engine.spare_protected(self._clock.now + _SPARED_S)
        picture = picture_of(source, engine, version)
        self._engine = engine
        return picture

    def _apply(self, change: Change[KubeObject]) -> None:
        if self._engine is None or isinstance(change.object, WorkloadJob):
            return
        self._clock.now = self._read_clock()
        for each in statement_changes(change):
            self._engine.cluster.apply(each)
