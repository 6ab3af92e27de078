"""Sees in the results of cycles what the history keeps, and adds it to the record.

`process.py` calls it after each cycle, at each commit and after evictions. What became of a plan is
in its BindRequest, and a wait lasts as long as reports have its reason.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from bindery.api.shown import MOST_QUOTED, shown
from bindery.api.states import GangState, Phase
from bindery.api.times import seconds
from bindery.kube.objects.bindrequests import StatementKey
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.history.entries import (
    MOST_NODES,
    NO_GANG,
    Gang,
    HistoryEntry,
    HistoryKind,
)
from bindery.scheduler.history.figures import figures_of
from bindery.scheduler.history.record import HistoryRecord
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey, TaskStatus, Uid
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.planning.reports import CycleReport

LOOK_EVERY_S: Final = 10.0
"""Minimum time between two looks at all gangs that wait."""
LEAST_WAIT_S: Final = 10.0
"""Shorter waits have no entry."""
MOST_NAME: Final = 253
"""The longest name that the API server accepts. Users can write more into `spec.queue`."""
_PASSING: Final = frozenset({JobReason.NOT_TRIED_YET, JobReason.COMMIT_UNDER_WAY})
"""Reasons that last only moments: the one before goes on."""
_BOUND: Final = frozenset({TaskStatus.RUNNING, TaskStatus.SUCCEEDED, TaskStatus.FAILED})


@dataclass(frozen=True, slots=True)
class _Wait:
    gang: Gang
    reason: str
    message: str
    since: float


@dataclass(slots=True)
class _Plan:
    """A commit whose outcome is not known yet."""

    entry: HistoryEntry
    pods: tuple[Uid, ...]
    is_seen: bool = False
    """Whether a watch has shown its BindRequest."""


class HistoryNotes:
    """Adds to `record` what happens in `cluster`. `clock` returns seconds since the epoch."""

    def __init__(self, cluster: Cluster, record: HistoryRecord, clock: Callable[[], float]) -> None:
        self._cluster, self._record, self._clock = cluster, record, clock
        self._waits: dict[JobKey, _Wait] = {}
        self._plans: dict[StatementKey, _Plan] = {}
        self._looked_at = 0.0

    def begin(self) -> None:
        """Begin a term: waits and plans of an earlier one are forgotten."""
        self._waits.clear()
        self._plans.clear()
        self._looked_at = 0.0

    def committed(self, draft: StatementDraft) -> None:
        """Note the commit of `draft`, whose request may still be refused."""
        if draft.spec.pod_group is None:  # single pods are too many, and show their node themselves
            return
        now = self._clock()
        key = JobKey(draft.namespace, draft.spec.pod_group.name, True)
        nodes = sorted({pod.selected_node for pod in draft.spec.pods})
        entry = HistoryEntry(
            HistoryKind.PLANNED,
            _gang(key, draft.spec.queue),
            now,
            now,
            pods=len(draft.spec.pods),
            seconds=self._waited_s(key, now) if not draft.spec.part else 0.0,
            nodes=tuple(shown(node, MOST_NAME) for node in nodes[:MOST_NODES]),
            node_count=len(nodes),
        )
        self._plans[draft.key] = _Plan(entry, tuple(task.uid for task in draft.tasks))

    def evicted(self, evictions: Sequence[Eviction]) -> None:
        """Note evictions that the API server has accepted."""
        now, jobs = self._clock(), self._cluster.state.jobs
        for eviction in evictions:
            victim, claimant = eviction.task.job, eviction.preemptor
            other = jobs.get(claimant)
            queue = other.queue if other is not None else ""
            self._record.add(
                HistoryEntry(
                    HistoryKind.EVICTED,
                    _gang(victim, eviction.task.queue),
                    now,
                    now,
                    pods=1,
                    reason=eviction.action,
                    claimant=NO_GANG if claimant == victim else _gang(claimant, queue),
                    moved=int(bool(eviction.moves_to)),
                )
            )

    def after_cycle(self, report: CycleReport) -> None:
        """Note outcomes, waits and the figures of queues, if the last look is old enough."""
        now = self._clock()
        # A negative difference means that the clock was set back.
        if 0 <= now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        self._settle(now)
        self._follow_waits(report, now)
        self._record.sample(figures_of(self._cluster.state, report.fair), now)

    def _waited_s(self, key: JobKey, now: float) -> float:
        """Return since how many seconds the gang `key` waits for its minimum; 0 if it does not."""
        group, job = self._cluster.groups.get(key), self._cluster.state.jobs.get(key)
        if group is None or job is None or job.is_scheduled:
            return 0.0
        waits = group.status.state in (GangState.WAITING, GangState.EVICTED)
        since = group.status.since if waits else group.metadata.creation_timestamp
        return max(now - (seconds(since) or now), 0.0)

    def _settle(self, now: float) -> None:
        """Add the plans whose requests have ended, and drop refused ones."""
        if not self._plans:
            return
        holds = self._cluster.holds
        known = {carried.statement: found for carried, found in holds.statements.items()}
        for key, plan in list(self._plans.items()):
            found = known.get(key)
            if found is not None:
                plan.is_seen = True
            if key in holds.assumed or (found is not None and not found.is_final):
                continue
            del self._plans[key]
            if found is not None:
                self._record.add(_ended(plan.entry, found.status.phase, now))
            elif any(map(self._is_bound, plan.pods)):  # the request is gone again
                self._record.add(_ended(plan.entry, Phase.SUCCEEDED, now))
            elif plan.is_seen:
                self._record.add(_ended(plan.entry, "Deleted", now))

    def _is_bound(self, uid: Uid) -> bool:
        task = self._cluster.state.tasks.get(uid)
        return task is not None and task.pod_status in _BOUND

    def _follow_waits(self, report: CycleReport, now: float) -> None:
        """Begin and end waits by the reports of a cycle."""
        jobs = self._cluster.state.jobs
        present: dict[JobKey, _Wait] = {}
        for key, found in report.jobs.items():
            job = jobs.get(key)
            if not key.is_group or found.satisfied or not found.is_known or job is None:
                continue
            before = self._waits.get(key)
            if found.reason in _PASSING and before is not None:
                present[key] = before
                continue
            message = shown(found.message, MOST_QUOTED)
            goes_on = before is not None and before.reason == found.reason
            since = before.since if before is not None and goes_on else now
            present[key] = _Wait(_gang(key, job.queue), found.reason, message, since)
        for key, wait in self._waits.items():
            goes_on = key in present and present[key].since == wait.since
            if not goes_on and now - wait.since >= LEAST_WAIT_S:
                self._record.add(_waited(wait, now))
        self._waits = present


def _gang(key: JobKey, queue: str) -> Gang:
    return Gang(key.namespace, key.name, shown(queue, MOST_NAME), key.is_group)


def _ended(plan: HistoryEntry, phase: str, now: float) -> HistoryEntry:
    return replace(plan, until=max(plan.since, now), reason=phase)


def _waited(wait: _Wait, now: float) -> HistoryEntry:
    return HistoryEntry(
        HistoryKind.WAITED,
        wait.gang,
        wait.since,
        now,
        seconds=now - wait.since,
        reason=wait.reason,
        message=wait.message,
    )
