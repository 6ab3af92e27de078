"""Writes conditions, gang states and nominated nodes in the background.

Each object has at most one waiting write; a newer one replaces it. Failures are written at once,
but at most every few seconds while only their message changes. Successes wait until no commit is in
flight, so that status writes do not delay a burst of gangs. Writes that change only counts of pods
are made one by one at any time, at most 20 a second.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from bindery.kube.client import Client, PatchKind
from bindery.kube.errors import ConflictError, KubeError, NotFoundError
from bindery.kube.http.outages import log_failure
from bindery.kube.lease import Leadership
from bindery.kube.objects.podgroups import PodCounts
from bindery.kube.objects.resources import POD_GROUPS, PODS, Resource
from bindery.kube.objects.watched import Condition
from bindery.scheduler.model.jobs import JobKey, Uid
from bindery.scheduler.status.conditions import ConditionWrite, ReportedKind

CONCURRENT_WRITES = 4
REWORD_AFTER_S = 5.0
"""Minimum time between two writes to one object that differ only in their message."""
SHOWN_AFTER_S = 30.0
"""Time after which the watch has shown a write.

If the object still differs, another client has overwritten it, and it is written again."""
TRY_AGAIN_AFTER_S = 2.0
GOOD_NEWS_AFTER_S = 5.0
"""Maximum delay of successes while commits are in flight; then they are written one by one."""
TRICKLE_S = 0.05
"""Pause between such writes."""

_RESOURCES: dict[ReportedKind, Resource[Any]] = {
    ReportedKind.POD: PODS,
    ReportedKind.POD_GROUP: POD_GROUPS,
}

_log = structlog.get_logger()


@dataclass(slots=True)
class _Written:
    write: ConditionWrite
    at: float

    def has_content_of(self, write: ConditionWrite) -> bool:
        """Return whether the written content is the same as `write`."""
        same_queue = write.queue is None or write.queue == self.write.queue
        # Times of a state are not compared: they are computed from the state before it.
        same_figures = _figures(self.write) == _figures(write)
        same_words = _words(self.write) == _words(write)
        return self.is_like(write) and same_queue and same_figures and same_words

    def is_like(self, write: ConditionWrite) -> bool:
        """Return whether `write` differs at most in its message."""
        old, new = self.write.condition, write.condition
        return (old.type, old.status, old.reason, self.write.nominated_node, self.write.state) == (
            new.type,
            new.status,
            new.reason,
            write.nominated_node,
            write.state,
        )


@dataclass(frozen=True, slots=True)
class _Conflict:
    group: JobKey
    at: float


class StatusWriter:
    """Patches status subresources. `is_busy` returns whether commits are in flight."""

    def __init__(
        self, client: Client, clock: Callable[[], float], is_busy: Callable[[], bool]
    ) -> None:
        self._client = client
        self._clock = clock
        self._is_busy = is_busy
        self._waiting: dict[Uid, tuple[float, ConditionWrite]] = {}
        """Object UID -> time since when it waits, and its write."""
        self._failed: dict[Uid, float] = {}
        """Object UID -> time of the last failure; the write is tried again."""
        self._written: dict[Uid, _Written] = {}
        """The last write of each object, which the watch may not show yet."""
        self._conflicts: dict[Uid, _Conflict] = {}
        """Objects of writes that were refused, of which nothing has been offered since."""
        self._wake = asyncio.Event()

    def offer(self, write: ConditionWrite) -> None:
        """Submit `write`, unless the same was just written."""
        uid = Uid(write.meta.uid)
        self._conflicts.pop(uid, None)
        written = self._written.get(uid)
        shown = self._clock() - SHOWN_AFTER_S
        if written is not None and written.at > shown and written.has_content_of(write):
            self._waiting.pop(uid, None)
            return
        # A newer write takes over the waiting time, so that changes cannot delay it forever.
        since, _ = self._waiting.get(uid, (self._clock(), write))
        self._waiting[uid] = (since, write)
        self._wake.set()

    def forget(self, uids: set[Uid]) -> None:
        """Forget deleted objects."""
        for uid in uids:
            self._written.pop(uid, None)
            self._waiting.pop(uid, None)
            self._failed.pop(uid, None)
            self._conflicts.pop(uid, None)

    def take_lost_groups(self) -> list[JobKey]:
        """Return the PodGroups whose status has to be computed again, once for each conflict.

        Their last write met a conflict at least `TRY_AGAIN_AFTER_S` ago, and nothing was offered
        since. The event of the change usually leads to an offer, but not if it came before the
        answer, or if nothing had changed. The write itself is not repeated: its version may be old.
        """
        latest = self._clock() - TRY_AGAIN_AFTER_S
        lost = {uid: each for uid, each in self._conflicts.items() if each.at <= latest}
        for uid in lost:
            del self._conflicts[uid]
        return [each.group for each in lost.values()]

    @property
    def known(self) -> set[Uid]:
        """UIDs of the objects with a waiting or recent write."""
        return set(self._written) | set(self._waiting) | set(self._conflicts)

    async def run(self, leadership: Leadership) -> None:
        """Write until cancelled or no longer leading. Writes of an earlier term are dropped."""
        self._waiting.clear()
        self._written.clear()
        self._failed.clear()
        self._conflicts.clear()
        while leadership.is_valid():
            due = self._due()
            if not due:
                self._wake.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(1.0 if self._waiting else None):
                        await self._wake.wait()
                if self._waiting:
                    await asyncio.sleep(0.05)  # lets one cycle's writes gather
                continue
            await asyncio.gather(*(self._write(write) for write in due[:CONCURRENT_WRITES]))
            if all(self._is_lazy(write) for write in due):
                await asyncio.sleep(TRICKLE_S)

    def _due(self) -> list[ConditionWrite]:
        now = self._clock()
        due: list[ConditionWrite] = []
        for uid, (since, write) in self._waiting.items():
            # One of these per round.
            if self._is_lazy(write) and any(self._is_lazy(each) for each in due):
                continue
            if self._is_due(uid, write, now - since, now):
                due.append(write)
            if len(due) == CONCURRENT_WRITES:
                break
        return due

    def _is_lazy(self, write: ConditionWrite) -> bool:
        """Return whether `write` must wait for others: counts, and successes in a burst."""
        return write.is_minor or (not write.is_urgent and self._is_busy())

    def _is_due(self, uid: Uid, write: ConditionWrite, waited_s: float, now: float) -> bool:
        if now - self._failed.get(uid, -math.inf) < TRY_AGAIN_AFTER_S:
            return False
        if not write.is_urgent:
            return waited_s >= (write.patience_s or (GOOD_NEWS_AFTER_S if self._is_busy() else 0.0))
        written = self._written.get(uid)
        recently = written is not None and now - written.at < REWORD_AFTER_S
        return not (recently and written is not None and written.is_like(write))

    async def _write(self, write: ConditionWrite) -> None:
        uid = Uid(write.meta.uid)
        self._waiting.pop(uid, None)  # before the call: a write offered during it must stay
        # A strategic merge patch keeps other conditions; custom resources do not support it.
        kind = PatchKind.STRATEGIC if write.subject is ReportedKind.POD else PatchKind.MERGE
        conditions = (
            (write.condition,) if write.subject is ReportedKind.POD else write.all_conditions
        )
        status: dict[str, object] = {
            "conditions": [_to_wire(condition) for condition in conditions]
        }
        if write.nominated_node is not None:
            # Null removes the field.
            status["nominatedNodeName"] = write.nominated_node or None
        if write.state is not None:
            status["state"] = write.state
        if write.figures is not None:
            status |= write.figures.to_wire()
        if write.queue is not None:
            status["queue"] = write.queue or None
        # The write must fail if the object changed: the pod may be bound by now, and a PodGroup
        # another one of its name (decision 071).
        body = {"metadata": {"resourceVersion": write.meta.resource_version}, "status": status}
        try:
            await self._client.patch(
                _RESOURCES[write.subject],
                write.meta.name,
                body,
                namespace=write.meta.namespace,
                subresource="status",
                kind=kind,
            )
        except NotFoundError:
            return
        except ConflictError:
            self._note_conflict(write)
            return
        except KubeError as error:
            log_failure(_log, "condition not written", error, object=write.meta.name)
            self._failed[uid] = self._clock()
            self._waiting.setdefault(uid, (self._clock(), write))  # a newer one comes first
            return
        self._failed.pop(uid, None)
        self._written[uid] = _Written(write, self._clock())

    def _note_conflict(self, write: ConditionWrite) -> None:
        # Waiting pods are offered in each cycle.
        uid, meta = Uid(write.meta.uid), write.meta
        if write.subject is ReportedKind.POD_GROUP and uid not in self._waiting:
            group = JobKey(meta.namespace, meta.name, True)
            self._conflicts[uid] = _Conflict(group, self._clock())


def _figures(write: ConditionWrite) -> tuple[PodCounts, str] | None:
    found = write.figures
    return (found.pods, found.assigned_queue) if found is not None else None


def _words(write: ConditionWrite) -> list[tuple[str, str, str, str]]:
    return [(each.type, each.status, each.reason, each.message) for each in write.all_conditions]


def _to_wire(condition: Condition) -> dict[str, str]:
    wire = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }
    if condition.last_transition_time:
        wire["lastTransitionTime"] = condition.last_transition_time
    return wire
