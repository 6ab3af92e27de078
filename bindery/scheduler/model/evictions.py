"""One eviction of a committed plan. The evictor writes it, and the gang's history records it."""

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
