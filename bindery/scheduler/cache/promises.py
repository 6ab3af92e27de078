"""Promises: room that evictions free for a job, with the planned node of each pod.

Owned by cluster.py. A job with a promise is planned before others, onto the promised nodes, until
all its pods are placed or the promise expires. Each pod has its node in `status.nominatedNodeName`,
from which a restarted scheduler restores the promise.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from bindery.scheduler.model.jobs import JobKey, Uid

KEPT_S = 120.0
"""How long freed room stays reserved for its claimant, in seconds.

Evicted pods may use their grace period before they go."""


@dataclass(slots=True)
class _Promise:
    until: float
    """Seconds since the epoch."""
    places: dict[Uid, str] = field(default_factory=dict)
    """Pod -> node name."""


class Promises:
    """Job -> its promise: when it ends, and the planned nodes."""

    def __init__(self) -> None:
        self._by_job: dict[JobKey, _Promise] = {}

    def make(self, job: JobKey, now: float) -> None:
        """Promise room to `job`; pods are about to be evicted for it."""
        self._by_job[job] = _Promise(now + KEPT_S)

    def take_up(self, job: JobKey, pod: Uid, node_name: str, now: float) -> None:
        """Restore a promise of an earlier scheduler from the nominated node of `pod`."""
        promise = self._by_job.setdefault(job, _Promise(now + KEPT_S))
        promise.places.setdefault(pod, node_name)

    def settle(self, job: JobKey, places: Mapping[Uid, str]) -> None:
        """Replace the planned nodes of `job` with those of the newest plan."""
        promise = self._by_job.get(job)
        if promise is not None:
            promise.places = dict(places)

    def fulfil(self, job: JobKey, pod: Uid) -> None:
        """Remove `pod` from the promise, as it is about to be bound.

        The promise ends with its last pod. A pod that is not part of it changes nothing.
        """
        promise = self._by_job.get(job)
        if promise is None or (promise.places and pod not in promise.places):
            return
        promise.places.pop(pod, None)
        if not promise.places:
            self.forget(job)

    def forget(self, job: JobKey) -> None:
        """End the promise to `job`."""
        self._by_job.pop(job, None)

    def expire(self, now: float) -> None:
        """End the promises whose time is over at `now`."""
        for job in [job for job, promise in self._by_job.items() if promise.until <= now]:
            del self._by_job[job]

    def holds(self, job: JobKey) -> bool:
        """Return whether `job` has a promise."""
        return job in self._by_job

    def places(self, job: JobKey) -> Mapping[Uid, str]:
        """Return the planned nodes of the pods of `job`, as far as they are known."""
        promise = self._by_job.get(job)
        return promise.places if promise is not None else {}

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Have the same promises after the block as before it."""
        kept = {job: replace(it, places=dict(it.places)) for job, it in self._by_job.items()}
        try:
            yield
        finally:
            self._by_job = kept

    @property
    def jobs(self) -> Iterable[JobKey]:
        """The jobs with a promise."""
        return tuple(self._by_job)
