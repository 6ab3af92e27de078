"""Deleted PodGroups, until it is known whether their pods run on.

Owned by cluster.py, which reports those with pods.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from bindery.kube.objects.watched import Meta
from bindery.scheduler.model.jobs import Job, JobKey

RUNS_ON_AFTER_S: Final = 2.0
"""Time between the deletion of a PodGroup and the report about its remaining pods, in seconds.

When a whole workload is deleted, its pods usually go within this time."""


class Orphans:
    """The PodGroups that were deleted a moment ago."""

    def __init__(self) -> None:
        self._deleted: dict[JobKey, tuple[float, Meta]] = {}
        """Deleted PodGroup -> time at which its deletion was seen, and its metadata."""

    def note(self, key: JobKey, meta: Meta, now: float) -> None:
        """Note that the PodGroup `key` was deleted."""
        self._deleted[key] = (now, meta)

    def due(self, jobs: Mapping[JobKey, Job], now: float) -> Iterator[tuple[Meta, str]]:
        """Yield metadata and a text for each PodGroup whose pods still run."""
        before = now - RUNS_ON_AFTER_S
        for key in [key for key, (seen_at, _) in self._deleted.items() if seen_at <= before]:
            _, meta = self._deleted.pop(key)
            job = jobs.get(key)
            count = job.charged.total() if job is not None and not job.exists else 0
            if job is not None and count:
                pods = "pod still runs" if count == 1 else "pods still run"
                yield meta, f"{count} {pods}, charged to queue {job.queue}: delete pods to end them"
