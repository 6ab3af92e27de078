"""Promises: the jobs for which others were evicted, and where their pods are to go.

Kept by cluster.py. Such a job is served before others until it has its places or the promise runs
out, and its pods go where they were promised to. A pod says its place as its nominated node, so a
scheduler that starts anew takes the promises up from what the pods say.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bindery.scheduler.model.jobs import JobKey, Uid

KEPT_S = 120.0
"""How long room is kept for whom it is made: evicted pods have their grace period to go."""


@dataclass(slots=True)
class _Promise:
    until: float
    """Seconds since the epoch."""
    places: dict[Uid, str] = field(default_factory=dict)
    """Pod -> node name."""


class Promises:
    """Job -> until when room is kept for it, and where."""

    def __init__(self) -> None:
        self._by_job: dict[JobKey, _Promise] = {}

    def make(self, job: JobKey, now: float) -> None:
        """Promise room to `job`: others are about to be evicted for it."""
        self._by_job[job] = _Promise(now + KEPT_S)

    def take_up(self, job: JobKey, pod: Uid, node_name: str, now: float) -> None:
        """Keep the place that `pod` says an earlier scheduler has promised to it."""
        promise = self._by_job.setdefault(job, _Promise(now + KEPT_S))
        promise.places.setdefault(pod, node_name)

    def settle(self, job: JobKey, places: Mapping[Uid, str]) -> None:
        """Note where the pods of `job` are to go by the newest plan."""
        promise = self._by_job.get(job)
        if promise is not None:
            promise.places = dict(places)

    def end(self, job: JobKey) -> None:
        """End the promise to `job`: it has its places, or will not get them."""
        self._by_job.pop(job, None)

    def expire(self, now: float) -> None:
        """End the promises that have run out."""
        for job in [job for job, promise in self._by_job.items() if promise.until <= now]:
            del self._by_job[job]

    def holds(self, job: JobKey) -> bool:
        """Return whether room is kept for `job`."""
        return job in self._by_job

    def places(self, job: JobKey) -> Mapping[Uid, str]:
        """Return where the pods of `job` are to go, as far as that is known."""
        promise = self._by_job.get(job)
        return promise.places if promise is not None else {}

    @property
    def jobs(self) -> Iterable[JobKey]:
        """The jobs for which room is kept."""
        return tuple(self._by_job)
