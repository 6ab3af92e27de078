"""Who was evicted last, for whom and by which action: the trail that a PodGroup keeps.

Owned by cluster.py; `status/gangs.py` puts it into words. A scheduler that has just begun knows no
trails and leaves what a PodGroup says about earlier evictions.
"""

from dataclasses import dataclass, replace
from typing import Final

from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey

_ONE_PLAN_S: Final = 60.0
"""Evictions of one job for another that are not further apart belong to one plan."""


@dataclass(frozen=True, slots=True)
class Trail:
    """The last evictions of a job that were made for one other job."""

    preemptor: JobKey
    action: str
    reason: str
    """The rule by which they were made."""
    pods: int
    at: float
    """When the last of them was made: seconds since the epoch."""


class Trails:
    """Job -> its trail."""

    def __init__(self) -> None:
        self._trails: dict[JobKey, Trail] = {}

    def note(self, eviction: Eviction, now: float) -> None:
        """Take in that the pod of `eviction` was evicted."""
        job = eviction.task.job
        new = Trail(eviction.preemptor, eviction.action, eviction.reason, 1, now)
        old = self._trails.get(job)
        if old is not None and _belong_together(old, new):
            new = replace(new, pods=old.pods + 1)
        self._trails[job] = new

    def forget(self, job: JobKey) -> None:
        """Forget a job that is gone."""
        self._trails.pop(job, None)

    def of(self, job: JobKey) -> Trail | None:
        """Return the trail of `job`, if it has one."""
        return self._trails.get(job)


def _belong_together(old: Trail, new: Trail) -> bool:
    same = (old.preemptor, old.action) == (new.preemptor, new.action)
    return same and new.at - old.at <= _ONE_PLAN_S
