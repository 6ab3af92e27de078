"""The last evictions of gangs and their claimants, from the conditions of PodGroups.

Used by `explanation`. Conditions name of a claimant in another namespace only the queue.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bindery.api.states import EVICTED
from bindery.kube.objects import Condition, PodGroup
from bindery.scheduler.model.evictions import is_made_for
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
    """Since when the gang has had its minimum again; empty if it has not."""

    @property
    def text(self) -> str:
        """The message, and whether the gang has recovered."""
        recovered = f" (it has had its minimum again since {self.recovered_at})"
        return self.message + (recovered if self.recovered_at else "")


def eviction_of(group: PodGroup | None) -> GangEviction | None:
    """Return the last evictions of `group`; None if none is recorded."""
    condition = find(group, EVICTED) if group is not None else None
    return None if group is None or condition is None else _eviction(group, condition)


def evicted_for(
    claimant: JobKey, queue: str, since: str, groups: Iterable[PodGroup]
) -> list[GangEviction]:
    """Return the gangs that were evicted for `claimant` or, in other namespaces, for its `queue`.

    `since`: the creation of the claimant; what was evicted before is left out. The last come first.
    """
    found = [
        (condition.last_transition_time or "", _eviction(group, condition))
        for group in groups
        if (condition := find(group, EVICTED)) is not None
        and JobKey(group.metadata.namespace, group.metadata.name, True) != claimant
        and (condition.last_transition_time or "") >= since
        and is_made_for(condition.message, claimant, queue, group.metadata.namespace)
    ]
    found.sort(key=lambda each: (each[0], each[1].job), reverse=True)
    return [eviction for _, eviction in found]


def eviction_lines(
    own: GangEviction | None, queue: str, others: Iterable[GangEviction]
) -> Iterator[str]:
    """Yield the last evictions of a gang of `queue`, and the gangs that were evicted for it."""
    if own is not None:
        yield f"Evicted ({own.action}): {own.text}."
    lines = [f"  {each.job}: {each.text}" for each in others]
    if lines:
        yield f"Evicted for it, or in other namespaces for queue {queue}:"
        yield from lines


def _eviction(group: PodGroup, condition: Condition) -> GangEviction:
    recovered = condition.status != "True"
    return GangEviction(
        JobKey(group.metadata.namespace, group.metadata.name, True),
        condition.reason,
        condition.message,
        (condition.last_transition_time or "unknown") if recovered else "",
    )
