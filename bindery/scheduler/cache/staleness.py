"""Since when gangs have been below their minimum, kept over cycles and over schedulers.

Owned by cluster.py, read by actions/stale_gang_eviction.py. A scheduler that has just started reads
the time from the PodGroup's condition; for a part of a gang it starts again. The time begins later
while replacements for lost pods are on their way: their owner may not be able to make them at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bindery.api.podgroup import SCHEDULED
from bindery.api.times import seconds
from bindery.kube.objects import Pod, PodGroup
from bindery.scheduler.model.jobs import Job, JobKey, TaskStatus

Part = tuple[JobKey, str]
"""A job and the sub-group of it that is too small; no name: the whole job is."""

_FIRST_BACKOFF_S: Final = 10.0
_MOST_BACKOFF_S: Final = 600.0
"""The Job controller waits 10 s after the first pod that it lost, twice as long after each further
one, and 10 minutes at most (Kubernetes, "Pod backoff failure policy")."""
_JOB: Final = "Job"


@dataclass(frozen=True, slots=True)
class _Losses:
    """The pods of a gang that a Job has to replace."""

    count: int
    last_at: float

    @property
    def replaced_by(self) -> float:
        """Until when the Job may wait before it makes others."""
        doublings = min(self.count - 1, 16)
        return self.last_at + min(_FIRST_BACKOFF_S * 2.0**doublings, _MOST_BACKOFF_S)


@dataclass(frozen=True, slots=True)
class Staleness:
    """How long a part has been too small."""

    since: float
    """When it had no replacements on their way any more: seconds since the epoch."""
    awaits_others: bool
    """Whether pods of it are still being deleted, after which others may come."""


class StalenessMemory:
    """Part -> since when it has been too small: seconds since the epoch."""

    def __init__(self) -> None:
        self._since: dict[Part, float] = {}
        self._losses: dict[JobKey, _Losses] = {}

    def lost(self, job: JobKey, pod: Pod, now: float) -> None:
        """Take in that `pod` of the gang `job` has gone or failed."""
        if any(owner.controller and owner.kind == _JOB for owner in pod.metadata.owner_references):
            losses = self._losses.get(job)
            count = losses.count if losses is not None else 0
            self._losses[job] = _Losses(count + 1, now)

    def forget(self, job: JobKey) -> None:
        """Forget a gang that is gone."""
        self._losses.pop(job, None)

    def observe(
        self, parts: Sequence[tuple[Job, str]], groups: Mapping[JobKey, PodGroup], now: float
    ) -> list[Staleness]:
        """Return since when each of `parts` has been too small; all others are sound at `now`."""
        since = {
            (job.key, name): self._since.get((job.key, name), _said(job, name, groups, now))
            for job, name in parts
        }
        self._since = since
        return [
            self._staleness(job, at, now)
            for (job, _), at in zip(parts, since.values(), strict=True)
        ]

    def _staleness(self, job: Job, at: float, now: float) -> Staleness:
        """Return the staleness of a part of `job` that has been too small since `at`.

        Bounded, as pods that come and go would otherwise keep what is left of a gang for ever.
        """
        latest = at + _MOST_BACKOFF_S
        leaving = any(task.status is TaskStatus.RELEASING for task in job.tasks.values())
        times, losses = [now if leaving else at], self._losses.get(job.key)
        if losses is not None and not job.has_come:
            times.append(losses.replaced_by)
        elif losses is not None:  # those that have come had no time yet to be placed
            created = (seconds(task.created) for task in job.pending.values())
            times.extend(came for came in created if came is not None)
        return Staleness(min(max(times), latest), awaits_others=leaving and now < latest)


def _said(job: Job, name: str, groups: Mapping[JobKey, PodGroup], now: float) -> float:
    """Return since when the PodGroup says that it is not scheduled; `now` if it does not say so.

    It cannot be stale since before its newest pod was bound.
    """
    group = groups.get(job.key)
    if name or group is None:
        return now
    for condition in group.status.conditions or ():
        if condition.type == SCHEDULED and condition.status == "False":
            at = seconds(condition.last_transition_time)
            bound = (task.bound_at for task in job.tasks.values() if task.status.is_active)
            return max((each for each in (at, *bound) if each is not None), default=now)
    return now
