"""One eviction of a committed plan. The evictor writes it, and the gang's history records it.

The reason of an eviction stands in the status of the victim's gang; `bindery explain` finds by it
the gangs that were evicted for another.
"""

from dataclasses import dataclass

from bindery.scheduler.model.jobs import JobKey, Task


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


def room_reason(action: str, claimant: JobKey, queue: str, victim_namespace: str) -> str:
    """Return why a pod in `victim_namespace` is evicted by `action` for `claimant` of `queue`.

    Other namespaces read of the claimant only its queue.
    """
    if victim_namespace == claimant.namespace:
        return f"{action} for {claimant.name} (queue {queue})"
    return f"{action} for queue {queue}"


def is_made_for(text: str, claimant: JobKey, queue: str, victim_namespace: str) -> bool:
    """Return whether `text` ends with a `room_reason` that may be about `claimant`.

    In another namespace it may also be about another gang of `queue`.
    """
    return text.endswith(room_reason("", claimant, queue, victim_namespace))
