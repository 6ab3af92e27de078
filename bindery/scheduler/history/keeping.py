"""The history of one scheduler process: notes, record and keeper, by the configuration.

Created by `process.py`. An error of the history is logged and counted, and never stops planning.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import structlog
from prometheus_client import Counter

from bindery.api.configuration import HistoryConfiguration, SchedulerConfiguration
from bindery.kube.client import Client
from bindery.kube.lease import Leadership
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.history.notes import HistoryNotes
from bindery.scheduler.history.place import KEY, history_name
from bindery.scheduler.history.record import HistoryRecord
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.planning.reports import CycleReport
from bindery.scheduler.records.keeper import RecordKeeper
from bindery.scheduler.records.store import RecordStore

HISTORY_ERRORS: Final = Counter(
    "bindery_history_errors_total", "Failures to read or write the history.", ["operation"]
)

_log = structlog.get_logger()


class _Problems:
    """Counts and logs what failed."""

    def error(self, operation: str, reason: str, problem: str) -> None:
        HISTORY_ERRORS.labels(operation).inc()
        _log.warning("history", reason=reason, problem=problem)


class HistoryKeeping:
    """Keeps the history of `cluster` while this process leads, if it is enabled."""

    def __init__(
        self,
        configuration: SchedulerConfiguration,
        cluster: Cluster,
        client: Client,
        clock: Callable[[], float],
    ) -> None:
        history, namespace = configuration.history, configuration.leader_election.namespace
        self._is_on = history.enabled
        self._record = HistoryRecord(history.window_seconds)
        self._notes = HistoryNotes(cluster, self._record, clock)
        self._keeper = RecordKeeper(
            self._record,
            RecordStore(client, history_name(configuration.node_pool), namespace, KEY),
            _Problems(),
            "History",
            history.save_seconds,
            lambda: None,
        )

    def configure(self, history: HistoryConfiguration) -> None:
        """Use the window and the interval of `history` from now on; `enabled` needs a restart."""
        self._record.window_s = history.window_seconds
        self._keeper.save_s = history.save_seconds

    @asynccontextmanager
    async def kept(self, leadership: Leadership) -> AsyncIterator[None]:
        """Load the history, store it periodically, and once more at the end of the term."""
        if not self._is_on:
            yield
            return
        self._notes.begin()
        async with self._keeper.kept(leadership):
            yield

    def committed(self, draft: StatementDraft) -> None:
        """Note a commit."""
        if self._is_on:
            self._notes.committed(draft)

    def evicted(self, evictions: Sequence[Eviction]) -> None:
        """Note executed evictions."""
        if self._is_on:
            self._notes.evicted(evictions)

    def after_cycle(self, report: CycleReport) -> None:
        """Note what a cycle shows."""
        if self._is_on:
            self._notes.after_cycle(report)
