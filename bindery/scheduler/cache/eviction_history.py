"""The evictions of each gang since it was whole: how many pods, and the last action and reason.

Owned by cluster.py; `status/gangs.py` writes it to the PodGroup's conditions. After a restart the
history is empty, and the conditions about earlier evictions stay as they are.
"""

from dataclasses import dataclass

from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey


@dataclass(frozen=True, slots=True)
class EvictionRecord:
    """The evictions of a gang since it was whole."""

    action: str
    """The action of the last of them."""
    reason: str
    """Text of the last of them for people."""
    pods: int
    """Number of pods that all plans together evicted."""
    at: float
    """Time of the last of them: seconds since the epoch."""


class EvictionHistory:
    """Job -> the record of its evictions since it was whole."""

    def __init__(self) -> None:
        self._records: dict[JobKey, EvictionRecord] = {}
        self._whole: dict[JobKey, int] = {}
        """Job -> its number of placed pods when it was whole."""
        self._was_whole: set[JobKey] = set()
        """Jobs that were whole before their evictions of which none is recorded yet."""

    def expect(self, job: JobKey, placed_pods: int) -> None:
        """Note that an eviction is about to be requested, with `placed_pods` pods on nodes.

        A gang is whole again when it has as many as before the evictions in its record.
        """
        if job.is_group and placed_pods >= self._whole.get(job, 0):
            self._whole[job] = placed_pods
            self._was_whole.add(job)

    def note(self, eviction: Eviction, now: float) -> None:
        """Record that the pod of `eviction` was evicted."""
        job = eviction.task.job
        if not job.is_group:  # a pod alone has no condition, and does not come back
            return
        old = None if job in self._was_whole else self._records.get(job)
        self._was_whole.discard(job)
        pods = 1 + (old.pods if old is not None else 0)
        self._records[job] = EvictionRecord(eviction.action, eviction.reason, pods, now)

    def forget(self, job: JobKey) -> None:
        """Drop the record of a deleted job."""
        self._records.pop(job, None)
        self._whole.pop(job, None)
        self._was_whole.discard(job)

    def of(self, job: JobKey) -> EvictionRecord | None:
        """Return the record of `job`; None if it has none."""
        return self._records.get(job)
