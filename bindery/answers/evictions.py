"""The last evictions of gangs and their claimants, from the conditions of PodGroups.

Used by `explanation` and `own`. For a claimant in another namespace, conditions contain only its
queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bindery.api.states import EVICTED
from bindery.kube.objects.ownernames import workload_text
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Condition
from bindery.scheduler.model.evictions import Claimant, is_made_for
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.status.gangs import find


@dataclass(frozen=True, slots=True)
class GangEviction:
    """The last evictions of a gang."""

    job: JobKey
    action: str
    """The reason of the condition, such as Reclaim."""
    message: str
    """The number of evicted pods, the time, the action, and the claimant or its queue."""
    recovered_at: str
    """Time since which the gang has its minimum again; empty if it has not."""

    @property
    def text(self) -> str:
        """The message, and whether the gang has recovered since."""
        recovered = f" (it has had its minimum again since {self.recovered_at})"
        return self.message + (recovered if self.recovered_at else "")


def eviction_of(group: PodGroup | None) -> GangEviction | None:
    """Return the last evictions of `group`; None if none is recorded."""
    condition = find(group.status.conditions, EVICTED) if group is not None else None
    return None if group is None or condition is None else _eviction(group, condition)


def evicted_for(
    key: JobKey, queue: str, since: str, groups: Sequence[PodGroup]
) -> list[GangEviction]:
    """Return the gangs that were evicted for the job `key` or, in other namespaces, for its queue.

    `since`: the creation of the job; earlier evictions are left out. The last evictions come first.
    """
    own = (workload_text(each) for each in groups if _key(each) == key)
    claimant = Claimant(key.namespace, next(own, "") or key.name, queue)
    found = [
        (condition.last_transition_time or "", _eviction(group, condition))
        for group in groups
        if (condition := find(group.status.conditions, EVICTED)) is not None
        and _key(group) != key
        and (condition.last_transition_time or "") >= since
        and is_made_for(condition.message, claimant, group.metadata.namespace)
    ]
    found.sort(key=lambda each: (each[0], each[1].job), reverse=True)
    return [eviction for _, eviction in found]


def _key(group: PodGroup) -> JobKey:
    return JobKey(group.metadata.namespace, group.metadata.name, True)


def _eviction(group: PodGroup, condition: Condition) -> GangEviction:
    recovered = condition.status != "True"
    return GangEviction(
        _key(group),
        condition.reason,
        condition.message,
        (condition.last_transition_time or "unknown") if recovered else "",
    )
