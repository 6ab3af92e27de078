"""The last evictions of each gang: how many pods, for which job, by which action.

Owned by cluster.py; `status/gangs.py` writes it to the PodGroup's conditions. After a restart the
history is empty, and the conditions about earlier evictions stay as they are.
"""

from dataclasses import dataclass, replace
from typing import Final

from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey

_ONE_PLAN_S: Final = 60.0
"""Evictions for the same job within this time are counted as one plan."""


@dataclass(frozen=True, slots=True)
class EvictionRecord:
    """The last evictions of a job, all made for one other job."""

    preemptor: JobKey
    action: str
    reason: str
    """Text of the eviction for people."""
    pods: int
    at: float
    """Time of the last of them: seconds since the epoch."""


class EvictionHistory:
    """Job -> the record of its last evictions."""

    def __init__(self) -> None:
        self._records: dict[JobKey, EvictionRecord] = {}

    def note(self, eviction: Eviction, now: float) -> None:
        """Record that the pod of `eviction` was evicted."""
        job = eviction.task.job
        new = EvictionRecord(eviction.preemptor, eviction.action, eviction.reason, 1, now)
        old = self._records.get(job)
        if old is not None and _belong_together(old, new):
            new = replace(new, pods=old.pods + 1)
        self._records[job] = new

    def forget(self, job: JobKey) -> None:
        """Drop the record of a deleted job."""
        self._records.pop(job, None)

    def of(self, job: JobKey) -> EvictionRecord | None:
        """Return the record of `job`; None if it has none."""
        return self._records.get(job)


def _belong_together(old: EvictionRecord, new: EvictionRecord) -> bool:
    same = (old.preemptor, old.action) == (new.preemptor, new.action)
    return same and new.at - old.at <= _ONE_PLAN_S
