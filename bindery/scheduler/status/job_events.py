"""Events about jobs that wait or were placed: at PodGroups, pods and owners. Pure.

The loop records the returned events after each cycle. A gang gets an event when its reason changes,
and repetitions while it waits, because the API server deletes events after an hour. Only one pod of
each shape gets a copy of the event.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from zlib import crc32

from bindery.api.bindrequest import few_names
from bindery.api.names import API_VERSION
from bindery.api.states import EVICTED
from bindery.api.times import seconds
from bindery.kube.events.book import ObjectReference, Occurrence, Severity
from bindery.kube.objects.watched import OwnerReference
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.model.evictions import Eviction, known_name
from bindery.scheduler.model.jobs import JobKey, Task, TaskStatus, Uid
from bindery.scheduler.model.reasons import STILL_COMING, JobReason
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.planning.reports import CycleReport, JobReport


def owner_of(cluster: Cluster, key: JobKey) -> ObjectReference | None:
    """Return the object that owns the PodGroup of a job, else the controller of its waiting pods.

    None without such an object.
    """
    group, job = cluster.groups.get(key), cluster.state.jobs.get(key)
    owner = _first(group.metadata.owner_references) if group is not None else None
    for uid in job.pending if owner is None and job is not None else ():
        pod = cluster.pods.get(uid)
        owner = _first(pod.metadata.owner_references) if pod is not None else None
        break
    if owner is None:
        return None
    return ObjectReference(owner.api_version, owner.kind, key.namespace, owner.name, owner.uid)


def _first(references: Iterable[OwnerReference]) -> OwnerReference | None:
    """Return the controller among `references`, else the first of them."""
    return min(references, key=lambda each: not each.controller, default=None)


GROUPED_WITHIN_S: Final = 15.0
"""Age from which a pod that waits for its PodGroup has a condition and an event."""
REPEATED_AFTER_S: Final = 1800.0
"""Maximum time between two events about a gang that waits."""
_SPREAD_S: Final = 600.0
"""Maximum seconds by which a repetition comes earlier, by UID, so that repetitions of a burst are
spread.
"""
MOST_SHAPES: Final = 20
"""Maximum number of pods of one gang with an event."""
_ROOM_MADE: Final = "RoomMade"
_PASSING: Final = STILL_COMING | {JobReason.COMMIT_UNDER_WAY, JobReason.NOT_TRIED_YET}
"""Reasons without events on pods: they last only moments, or no pod waits for a node."""
_WAITS: Final = frozenset({TaskStatus.PENDING.value, TaskStatus.PIPELINED.value})


_Plan = tuple[JobKey, str, str]
"""Claimant, action and queue of the victims."""


@dataclass(frozen=True, slots=True)
class _Reported:
    """The last event about a job."""

    reason: str
    satisfied: bool
    waits_for: str
    at: float

    def is_like(self, job: JobReport) -> bool:
        return (self.reason, self.satisfied, self.waits_for) == (
            job.reason,
            job.satisfied,
            job.waits_for,
        )


class JobEvents:
    """Which events jobs have had. All times are seconds since the epoch."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._reported: dict[Uid, _Reported] = {}

    def of_cycle(self, report: CycleReport, now: float) -> Iterator[Occurrence]:
        """Yield the events about the jobs of `report`."""
        for job in report.jobs.values():
            if job.is_known and (job.uid or job.pods):
                yield from self._of_job(job, now)

    def of_evictions(self, evictions: Sequence[Eviction]) -> Iterator[Occurrence]:
        """Yield the events about executed `evictions`: on the gangs that lose pods, on their
        owners, and on the jobs that get the room. The latter contain no names of other tenants.
        """
        groups, plans = self._cluster.groups, defaultdict[_Plan, list[Eviction]](list)
        for each in evictions:
            key = each.task.job
            if each.preemptor != key:  # otherwise the rest of a broken gang
                plans[each.preemptor, each.action, each.task.queue].append(each)
            if key in groups:
                # One text for all evictions of a plan: they become one event with a count.
                owner = owner_of(self._cluster, key)
                for at in (reference(key, groups[key].metadata.uid), owner):
                    if at is not None:
                        yield _normal(at, EVICTED, each.reason, is_minor=False)
        for (claimant, action, queue), gone in plans.items():
            job = self._cluster.state.jobs.get(claimant)
            if job is not None and job.uid:
                text = f"{action}: {self._room_text(claimant, queue, gone)}"
                yield _normal(reference(claimant, job.uid), _ROOM_MADE, text, is_minor=False)

    def keep(self, alive: set[Uid]) -> None:
        """Forget all PodGroups and pods that are not in `alive`."""
        for uid in self._reported.keys() - alive:
            del self._reported[uid]

    def _of_job(self, job: JobReport, now: float) -> Iterator[Occurrence]:
        known_as = _known_as(job)
        reported = self._reported.get(known_as)
        is_new = reported is None or not reported.is_like(job)
        if not is_new and reported is not None and not _is_due(job, reported, now):
            return
        if job.reason == JobReason.WAITING_FOR_GROUP and self._is_young(job, now):
            return  # every pod waits like this for a moment
        self._reported[known_as] = _Reported(job.reason, job.satisfied, job.waits_for, now)
        at = reference(job.key, job.uid) if job.uid else None
        if not job.satisfied:
            yield from self._of_waiting(at, job, is_new=is_new)
        elif at is not None and (reported is None or not reported.satisfied):
            # If it never waited, the binder's event has the same information.
            yield _normal(at, JobReason.SCHEDULED, _places_text(job), is_minor=reported is None)
        if job.key.is_group and job.waits_for and job.waits_for not in _PASSING:
            yield from self._of_pods(job)

    def _of_waiting(
        self, at: ObjectReference | None, job: JobReport, *, is_new: bool
    ) -> Iterator[Occurrence]:
        """Yield the events at the gang or single pod itself and at its owner.

        `at`: the PodGroup or single pod; None if the PodGroup does not exist.
        """
        if at is not None and job.reason in STILL_COMING:
            yield _normal(at, job.reason, job.message, is_minor=not is_new)
            return
        if at is not None:
            # If all pods of an owner wait for their PodGroup, the owner's event comes first.
            is_minor = not is_new or job.reason == JobReason.WAITING_FOR_GROUP
            yield _warning(at, job.reason, job.message, is_minor=is_minor)
        owner = owner_of(self._cluster, job.key)
        if owner is not None:
            yield _warning(owner, job.reason, job.message, is_minor=not is_new)

    def _of_pods(self, job: JobReport) -> Iterator[Occurrence]:
        """Yield an event about one waiting pod of each shape, so that `describe pod` has one."""
        known = self._cluster.state.jobs.get(job.key)
        first: dict[Shape, Task] = {}
        for task in known.tasks.values() if known is not None else ():
            report = job.pods.get(task.uid)
            if report is None or report.state not in _WAITS:
                continue
            best = first.get(task.shape)
            if best is None or task.order < best.order:
                first[task.shape] = task
        for task in islice(sorted(first.values(), key=lambda each: each.order), MOST_SHAPES):
            pod = ObjectReference("v1", "Pod", task.namespace, task.name, task.uid)
            yield _warning(pod, job.waits_for, job.pods[task.uid].message, is_minor=True)

    def _room_text(self, claimant: JobKey, queue: str, gone: Sequence[Eviction]) -> str:
        """Return a text about the pods evicted for `claimant`. Only gangs of its own namespace are
        named.
        """
        moved = sum(bool(each.moves_to) for each in gone)
        pods = "1 pod was" if len(gone) == 1 else f"{len(gone)} pods were"
        ends = [f"{moved} moved to other nodes"] if moved else []
        ends += [f"{len(gone) - moved} lost their places"] if moved < len(gone) else []
        keys = {e.task.job for e in gone if e.task.namespace == claimant.namespace}
        jobs = self._cluster.state.jobs
        own = {known_name(jobs[key]) if key in jobs else key.name for key in keys}
        named = f" ({few_names(sorted(own))})" if own else ""
        return f"{pods} evicted for it, charged to queue {queue}{named}: {', '.join(ends)}"

    def _is_young(self, job: JobReport, now: float) -> bool:
        known = self._cluster.state.jobs.get(job.key)
        created = seconds(known.created) if known is not None else None
        return created is None or now - created < GROUPED_WITHIN_S


def _known_as(job: JobReport) -> Uid:
    """Return the UID of the PodGroup or single pod; of one of the pods if no PodGroup exists."""
    return job.uid or min(job.pods)


def _is_due(job: JobReport, reported: _Reported, now: float) -> bool:
    """Return whether to repeat the event about `job`, which still waits."""
    if not job.waits_for:
        return False
    early_s = crc32(_known_as(job).encode()) % int(_SPREAD_S)
    return now - reported.at >= REPEATED_AFTER_S - early_s


def _normal(at: ObjectReference, reason: str, text: str, *, is_minor: bool) -> Occurrence:
    return Occurrence(at, Severity.NORMAL, reason, text, is_minor)


def _warning(at: ObjectReference, reason: str, text: str, *, is_minor: bool) -> Occurrence:
    return Occurrence(at, Severity.WARNING, reason, text, is_minor)


def _places_text(job: JobReport) -> str:
    """Return a text with the nodes of the pods of `job`, and the pods that still wait."""
    nodes = [pod.node for pod in job.pods.values() if pod.state == TaskStatus.BINDING.value]
    pods = "1 pod goes" if len(nodes) == 1 else f"{len(nodes)} pods go"
    text = f"{pods} to {few_names(nodes)}" if nodes else "it has its minimum"
    return f"{text}; {job.message}" if job.message else text


def reference(key: JobKey, uid: str) -> ObjectReference:
    """Return the reference to the PodGroup, or single pod, of a job for events."""
    version, kind = (API_VERSION, "PodGroup") if key.is_group else ("v1", "Pod")
    return ObjectReference(version, kind, key.namespace, key.name, uid)
