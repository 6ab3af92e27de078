"""Computes a gang's turn and its queue's figures, for users without read access to other objects.

Pure. `standing_writer` writes it. The input is the order in which the last cycle tried the waiting
jobs, and the status of the queues. The result contains no name of another gang.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from bindery.api.states import UNLIMITED
from bindery.kube.objects.podgroups import GangQueue, Turn
from bindery.kube.objects.queues import Queue, QueueResource
from bindery.kube.objects.watched import Meta
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.planning.reports import CycleReport

_HAVE_A_TURN = frozenset(
    {
        JobReason.UNSCHEDULABLE,
        JobReason.NODES_REQUESTED,
        JobReason.OVER_LIMIT,
        JobReason.NON_PREEMPTIBLE_OVER_QUOTA,
        JobReason.NOT_READY,
        JobReason.NOT_TRIED_YET,
        JobReason.WAITS_FOR_RELEASE,
        JobReason.COMMIT_FAILED,
    }
)
"""Reasons of jobs that wait for room; the others lack something else."""
_EXACT_PLACES = 10
_NOTED_CHANGE = 0.1
"""Relative change of a later place from which it is written again."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The required fields of one PodGroup's status."""

    meta: Meta
    turn: Turn | None
    queue_figures: GangQueue | None

    def to_wire(self) -> dict[str, object]:
        """Return the fields of a merge patch of the status; null removes one."""
        return {
            "turn": msgspec.to_builtins(self.turn),
            "queueFigures": msgspec.to_builtins(self.queue_figures),
        }


def standings(cluster: Cluster, report: CycleReport) -> list[Standing]:
    """Return the standings that differ from the status of their PodGroups."""
    turns = turns_of(cluster, report)
    carriers = set(_carriers(cluster))
    figures = {name: _figures(queue) for name, queue in cluster.queues.items()}
    found = []
    for key, group in cluster.groups.items():
        job = cluster.state.jobs.get(key)
        its = figures.get(job.queue) if job is not None and key in carriers else None
        turn = turns.get(key)
        if is_news(group.status.turn, turn) or its != group.status.queue_figures:
            found.append(Standing(group.metadata, turn, its))
    return found


def turns_of(cluster: Cluster, report: CycleReport) -> dict[JobKey, Turn]:
    """Return the turns of the jobs that wait for room, in the order of `report`."""
    jobs = cluster.state.jobs
    order = [key for key in report.order if key in jobs and _has_a_turn(report, key)]
    in_queue = Counter(jobs[key].queue for key in order)
    seen: Counter[str] = Counter()
    turns = {}
    for index, key in enumerate(order):
        queue = jobs[key].queue
        seen[queue] += 1
        turns[key] = Turn(
            place=index + 1,
            of=len(order),
            place_in_queue=seen[queue],
            of_queue=in_queue[queue],
        )
    return turns


def _has_a_turn(report: CycleReport, key: JobKey) -> bool:
    found = report.jobs.get(key)
    if found is None or not found.can_run:
        return False
    return (found.waits_for or found.reason) in _HAVE_A_TURN


def _carriers(cluster: Cluster) -> Iterable[JobKey]:
    """Return the gangs that have the figures of their queue: the oldest of each namespace."""
    oldest: dict[tuple[str, str], tuple[str, JobKey]] = {}
    for key, group in cluster.groups.items():
        job = cluster.state.jobs.get(key)
        if job is None or not any(not task.status.has_ended for task in job.tasks.values()):
            continue
        where, age = (key.namespace, job.queue), group.metadata.creation_timestamp or ""
        oldest[where] = min(oldest.get(where, (age, key)), (age, key))
    return (key for _, key in oldest.values())


def _figures(queue: Queue) -> GangQueue:
    status, resources = queue.status, queue.spec.resources
    return GangQueue(
        name=queue.metadata.name,
        quota=dict(_given(resources, lambda each: each.quota)),
        limit=dict(_given(resources, lambda each: each.limit)),
        fair_share=status.fair_share,
        allocated=status.allocated,
        requested=status.requested,
        gangs=status.gangs,
    )


def is_news(old: Turn | None, new: Turn | None) -> bool:
    """Return whether `new` must be written in place of `old`."""
    if old is None or new is None:
        return old is not new
    pairs = (
        (old.place, new.place),
        (old.of, new.of),
        (old.place_in_queue, new.place_in_queue),
        (old.of_queue, new.of_queue),
    )
    return any(_is_noted(before, now) for before, now in pairs)


def _is_noted(before: int, now: int) -> bool:
    change = abs(before - now)
    return change > 0 and (min(before, now) <= _EXACT_PLACES or change >= now * _NOTED_CHANGE)


def _given(
    resources: Mapping[str, QueueResource], amount: Callable[[QueueResource], int | str | None]
) -> Iterator[tuple[str, str]]:
    """Yield resource and amount where a rule limits it."""
    for name, each in resources.items():
        value = amount(each)
        if value is not None and str(value) != str(UNLIMITED):
            yield name, str(value)
