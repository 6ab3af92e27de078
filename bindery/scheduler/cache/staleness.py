"""The time since when gangs are below their minimum, kept over cycles and restarts.

Owned by cluster.py, read by actions/stalegangeviction.py. After a restart the time of a gang
comes from the PodGroup's condition; the time of a sub-group starts again. The time starts later
while replacements for lost pods are expected, as their controller may not create them at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bindery.api.states import SCHEDULED
from bindery.api.times import seconds
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Pod
from bindery.scheduler.model.jobs import Job, JobKey, Task, TaskStatus

Part = tuple[JobKey, str]
"""A job and one of its sub-groups that is below its minimum; "" for the whole job."""

_FIRST_BACKOFF_S: Final = 10.0
_MOST_BACKOFF_S: Final = 600.0
"""The Job controller waits 10 s after the first failed pod, doubles the time with each further one,
and waits at most 10 minutes (Kubernetes, "Pod backoff failure policy")."""
_JOB: Final = "Job"


@dataclass(frozen=True, slots=True)
class _Losses:
    """The lost pods of a gang that a Job has to replace."""

    count: int
    last_at: float

    @property
    def replaced_by(self) -> float:
        """The latest time at which the Job creates replacements; seconds since the epoch."""
        doublings = min(self.count - 1, 16)  # avoids overflow; the backoff is bounded anyway
        return self.last_at + min(_FIRST_BACKOFF_S * 2.0**doublings, _MOST_BACKOFF_S)


@dataclass(frozen=True, slots=True)
class Staleness:
    """The time since when a part is below its minimum."""

    since: float
    """Seconds since the epoch; from then on, no replacements were expected."""
    awaits_others: bool
    """Whether pods of it are still being deleted; replacements may follow."""


class StalenessMemory:
    """Part -> time since when it is below its minimum: seconds since the epoch."""

    def __init__(self) -> None:
        self._since: dict[Part, float] = {}
        self._losses: dict[JobKey, _Losses] = {}
        self._whole: dict[JobKey, dict[str, frozenset[str] | None]] = {}
        """Job -> its parts that had their minimum and have lost no pod since, with their leaves;
        None: all leaves."""

    def saw(self, pod: Pod, task: Task | None, now: float, *, gone: bool) -> None:
        """Note an event of `pod`: its gang loses it if it is `gone` or fails. `task`: so far."""
        if task is None or not task.job.is_group or task.status.has_ended:
            return
        if gone or pod.status.phase == "Failed":
            if task.status.holds_room:
                whole = self._whole.get(task.job, {})
                for name, leaves in list(whole.items()):
                    if leaves is None or task.sub_group in leaves:
                        del whole[name]
            self._lost(task.job, pod, now)

    def note_whole(self, job: JobKey, name: str, leaves: frozenset[str] | None) -> None:
        """Note that the part `name` has its minimum; `leaves`: its leaves, None for all."""
        self._whole.setdefault(job, {})[name] = leaves

    def is_whole(self, job: JobKey, name: str) -> bool:
        """Return whether the part `name` had its minimum, and has lost no pod since."""
        return name in self._whole.get(job, {})

    def _lost(self, job: JobKey, pod: Pod, now: float) -> None:
        if any(owner.controller and owner.kind == _JOB for owner in pod.metadata.owner_references):
            losses = self._losses.get(job)
            count = losses.count if losses is not None else 0
            self._losses[job] = _Losses(count + 1, now)

    def forget(self, job: JobKey) -> None:
        """Forget a deleted gang."""
        self._losses.pop(job, None)
        self._whole.pop(job, None)

    def note(
        self, parts: Sequence[tuple[Job, str]], groups: Mapping[JobKey, PodGroup], now: float
    ) -> None:
        """Note that `parts` are below their minimum at `now`, and all other parts are not."""
        self._since = {
            (job.key, name): self._since.get((job.key, name), _said(job, name, groups, now))
            for job, name in parts
        }

    def of(self, job: Job, name: str, now: float) -> Staleness:
        """Return the staleness of the part `name` of `job`, which must have been noted.

        Replacements that are on their way delay its start by 10 minutes at most. Otherwise pods
        that come and go could keep the rest of a gang forever.
        """
        at = self._since[job.key, name]
        latest = at + _MOST_BACKOFF_S
        leaving = any(task.status is TaskStatus.RELEASING for task in job.tasks.values())
        times, losses = [now if leaving else at], self._losses.get(job.key)
        if losses is not None and not job.has_come:
            times.append(losses.replaced_by)
        elif losses is not None:  # replacements exist: they get the whole grace period
            created = (seconds(task.created) for task in job.pending.values())
            times.extend(came for came in created if came is not None)
        return Staleness(min(max(times), latest), awaits_others=leaving and now < latest)


def _said(job: Job, name: str, groups: Mapping[JobKey, PodGroup], now: float) -> float:
    """Return the time of the PodGroup's condition Scheduled=False; `now` if it has none.

    The result is never earlier than the binding of the newest active pod.
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
