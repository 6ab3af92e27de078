"""The reasons why a gang, a pod or the jobs of a queue wait.

`bindery.scheduler.insight` asks the engine; this module adds information from the cluster's
objects.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from bindery.answers.evictions import GangEviction, evicted_for, eviction_of
from bindery.answers.listings import request_rows, scheduled_condition
from bindery.answers.source import Source
from bindery.answers.subjects import Subject, statements_about
from bindery.answers.wire import to_wire
from bindery.kube.objects.snapshot import ClusterSnapshot, is_bound
from bindery.kube.objects.watched import Condition, Pod
from bindery.scheduler.insight.advice import advice
from bindery.scheduler.insight.queue import QueueExplanation, explain_queue
from bindery.scheduler.insight.waiting import Explanation
from bindery.scheduler.insight.waiting import explain as explain_job
from bindery.scheduler.model.reasons import JobReason


class Standing(StrEnum):
    """The standing of a job."""

    NEEDS_GROUP = "needs a PodGroup"
    """A single pod that the scheduler does not plan until a PodGroup selects it."""
    HAS_NO_PODS = "has no pods"
    NOT_WAITING = "does not wait"
    """No pod of the job waits for the scheduler."""
    WAITS = "waits"


@dataclass(frozen=True)
class JobAnswer:
    """The reason why a gang or a single pod waits, with its history."""

    source: Source
    about: Subject
    now: datetime
    explained: Explanation | None
    """The outcome of a cycle in memory; None if the scheduler does not plan the job."""

    @property
    def snapshot(self) -> ClusterSnapshot:
        """The objects of the cluster."""
        return self.source.snapshot

    @property
    def other_scheduler(self) -> str:
        """The name of another scheduler that plans the pod; empty for Bindery's or without a
        pod.
        """
        pod = self.about.pod
        if pod is None or pod.spec.scheduler_name == self.source.configuration.scheduler_name:
            return ""
        return pod.spec.scheduler_name or "default-scheduler"

    @cached_property
    def standing(self) -> Standing:
        """The standing of the job."""
        explained = self.explained
        if self._condition_of_pod() is not None:
            return Standing.NEEDS_GROUP
        is_empty = explained is not None and not explained.placed_pods + explained.waiting_pods
        if is_empty and self.about.key.is_group:
            return Standing.HAS_NO_PODS
        if explained is None or not explained.reason:
            return Standing.NOT_WAITING
        return Standing.WAITS

    @cached_property
    def condition(self) -> Condition | None:
        """The scheduler's condition about the job, in its PodGroup or its pod."""
        if self.about.group is not None:
            return scheduled_condition(self.about.group)
        return self._condition_of_pod()

    @property
    def is_held(self) -> bool:
        """Whether the condition reports the job as not scheduled."""
        return self.condition is not None and self.condition.status != "True"

    @property
    def queue_problem(self) -> str:
        """The reason why the queue of the job cannot be used; empty if it can."""
        return (self.explained.shares[-1].problem or "") if self.explained is not None else ""

    @property
    def advice(self) -> str:
        """Advice to the user; may be empty."""
        planned = self.explained.advice if self.explained is not None else ""
        match self.standing:
            case Standing.WAITS:
                return planned
            case Standing.NEEDS_GROUP:
                return self._advice(1)
            case Standing.HAS_NO_PODS if self.queue_problem:
                return self._advice(0, self.queue_problem.partition(":")[0])
            case Standing.HAS_NO_PODS if self.explained is not None:
                return planned or (self._advice(self.explained.min_member) if self.is_held else "")
        least = self.about.group.spec.min_member if self.about.group is not None else 1
        return self._advice(least) if self.is_held else planned

    @cached_property
    def evicted(self) -> GangEviction | None:
        """The last evictions of the gang."""
        return eviction_of(self.about.group)

    @cached_property
    def evicted_for_it(self) -> list[GangEviction]:
        """The gangs that were evicted for the job; none if it is not planned."""
        if self.explained is None:
            return []
        owner = self.about.group or self.about.pod
        since = owner.metadata.creation_timestamp if owner is not None else None
        queue, groups = self.explained.queue, self.snapshot.groups
        return evicted_for(self.about.key, queue, since or "", groups)

    def to_wire(self) -> object:
        """Return the answer for programs; None if the job is not planned."""
        if self.explained is None:
            return None
        found = ClusterSnapshot(statements=tuple(statements_about(self.snapshot, self.about)))
        answer: dict[str, Any] = {
            **to_wire(self.explained),
            "evicted": to_wire(self.evicted),
            "evictedForIt": to_wire(self.evicted_for_it),
            "requests": request_rows(found, self.now),
        }
        return self.source.described(answer)

    def _condition_of_pod(self) -> Condition | None:
        """Return the condition of a single pod that waits for a PodGroup; else None."""
        if self.about.group is not None or self.about.pod is None:
            return None
        return _waits_for_group(self.about.pod)

    def _advice(self, min_member: int, reason: str = "") -> str:
        """Return the advice for `reason`, by default for the reason of the condition."""
        reason = reason or (self.condition.reason if self.condition is not None else "")
        return advice(reason, where=self.about.changed, min_member=min_member, budget_blocks=False)


def explain(source: Source, about: Subject, now: datetime) -> JobAnswer:
    """Return the reason why `about` waits. `now`: the time to which ages refer.

    Raises:
        BadInputError: the configuration cannot be used.
    """
    pod = about.pod.metadata.name if about.pod is not None else ""
    return JobAnswer(source, about, now, explain_job(source.world().engine, about.key, pod))


def explain_jobs_of_queue(source: Source, name: str) -> QueueExplanation:
    """Return the shares of the queue `name` and its waiting jobs."""
    return explain_queue(source.world().engine, name)


def _waits_for_group(pod: Pod) -> Condition | None:
    """Return the condition of a pod that the scheduler does not plan until a PodGroup selects it.

    The scheduler's configuration, which is not read here, decides whether such pods exist.
    """
    if is_bound(pod):
        return None
    reasons = {each.reason: each for each in pod.status.conditions or () if each.status == "False"}
    return reasons.get(JobReason.WAITING_FOR_GROUP)
