"""The engine that pictures and explanations are planned with, kept from one plan to the next.

It is filled once, and then follows the watches as the scheduler's own does: filling an engine takes
several times as long as a plan. `state` and `asking` call it; `live` passes the changes on.
"""

import asyncio
import gc
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from bindery.answers.source import Source
from bindery.dashboard.facts import Picture
from bindery.dashboard.planned import picture_of
from bindery.kube.objects.watched import KubeObject
from bindery.kube.objects.workloads import WorkloadJob
from bindery.kube.watches.store import Change
from bindery.scheduler.cache.feed import statement_changes
from bindery.scheduler.cache.inbox import Inbox
from bindery.scheduler.engine import Engine
from bindery.scheduler.insight.waiting import Explanation, explain
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.usage.source import past_usage
from bindery.scheduler.world import Clock

T = TypeVar("T")

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
        self.turn = asyncio.Lock()
        """Held while the engine, or memory for another one, is in use: one plan at a time."""
        self.lent = self._inbox.lent
        """Within the block, one question may be asked in a thread, and changes wait."""

    def take(self, change: Change[KubeObject]) -> None:
        """Follow a change of the cluster, at once or after the plan that is under way."""
        self._inbox.put(partial(self._apply, change))

    def picture(self, source: Source, version: int) -> Picture:
        """Return the picture of the cluster in `source`, as it was when the engine was lent.

        Raises:
            BadInputError: the configuration cannot be used.
        """
        return self._asked(source, lambda engine: picture_of(source, engine, version))

    def explanation(self, source: Source, key: JobKey) -> Explanation | None:
        """Return why the gang `key` waits; None if it is not planned. `source`: as for `picture`.

        Raises:
            BadInputError: the configuration cannot be used.
        """
        return self._asked(source, lambda engine: explain(engine, key))

    def drop(self) -> None:
        """Free the memory of the engine; the next question fills a new one."""
        self._engine = None
        gc.collect()  # an engine refers to itself

    def _asked(self, source: Source, question: Callable[[Engine], T]) -> T:
        """Return the answer to `question`, which leaves the engine as it was or fails."""
        engine, self._engine = self._engine, None
        if engine is not None and engine.configuration != source.configuration:
            engine = None
        self._clock.now = source.now.timestamp()
        if engine is None:
            self.drop()  # there is room for one
            engine = source.engine(self._clock)
        engine.past = past_usage(source.configuration.usage, source.past)
        engine.spare_protected(self._clock.now + _SPARED_S)
        answer = question(engine)
        self._engine = engine
        return answer

    def _apply(self, change: Change[KubeObject]) -> None:
        engine = self._engine  # a thread may drop it
        if engine is None or isinstance(change.object, WorkloadJob):
            return
        self._clock.now = self._read_clock()
        for each in statement_changes(change):
            engine.cluster.apply(each)
