"""One eviction of a committed plan. The evictor writes it, and the gang's history records it.

The reason of an eviction stands in the status of the victim's gang; `bindery explain` finds by it
the gangs that were evicted for another.
"""

from dataclasses import dataclass

from bindery.scheduler.model.jobs import Job, JobKey, Task


@dataclass(frozen=True, slots=True)
class Eviction:
    """The eviction of one pod by a committed plan."""

    task: Task
    reason: str
    preemptor: JobKey
    """The job that gets the room."""
    moves_to: str = ""
    """The node that the plan promises to the pod; empty if the pod is not moved."""
    action: str = ""
    """The action that made the plan."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """The job that gets the room of evictions, as people know it."""

    namespace: str
    name: str
    """The workload that the grouper made the job for, such as `Job vis0`; else the PodGroup or pod.
    """
    queue: str


def claimant_of(job: Job) -> Claimant:
    """Return `job` as a claimant."""
    return Claimant(job.key.namespace, known_name(job), job.queue)


def known_name(job: Job) -> str:
    """Return the name by which people in the namespace of `job` know it."""
    return job.workload or job.key.name


def room_reason(action: str, claimant: Claimant, victim_namespace: str) -> str:
    """Return why a pod in `victim_namespace` is evicted by `action` for `claimant`.

    Other namespaces read of the claimant only its queue.
    """
    if victim_namespace == claimant.namespace:
        return f"{action} for {claimant.name} (queue {claimant.queue})"
    return f"{action} for queue {claimant.queue}"


def is_made_for(text: str, claimant: Claimant, victim_namespace: str) -> bool:
    """Return whether `text` ends with a `room_reason` that may be about `claimant`.

    In another namespace it may also be about another gang of its queue.
    """
    return text.endswith(room_reason("", claimant, victim_namespace))
