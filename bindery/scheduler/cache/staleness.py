"""Since when gangs have been below their minimum, kept over cycles and over schedulers.

Owned by cluster.py, asked by the action `stalegangeviction`. A scheduler that has just begun reads
the time off the PodGroup's own condition; of a part of a gang it counts anew.
"""

from collections.abc import Mapping, Sequence

from bindery.api.podgroup import SCHEDULED
from bindery.api.times import seconds
from bindery.kube.objects import PodGroup
from bindery.scheduler.model.jobs import Job, JobKey

Part = tuple[JobKey, str]
"""A job and the sub-group of it that is too small; no name: the whole job is."""


class StalenessMemory:
    """Part -> since when it has been too small: seconds since the epoch."""

    def __init__(self) -> None:
        self._since: dict[Part, float] = {}

    def observe(
        self, parts: Sequence[tuple[Job, str]], groups: Mapping[JobKey, PodGroup], now: float
    ) -> list[float]:
        """Return since when each of `parts` has been too small; all others are sound at `now`."""
        since = {
            (job.key, name): self._since.get((job.key, name), _said(job, name, groups, now))
            for job, name in parts
        }
        self._since = since
        return list(since.values())


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
