"""An eviction that a plan asks for, as the evictor writes it and the gang's trail keeps it."""

from dataclasses import dataclass

from bindery.scheduler.model.jobs import JobKey, Task


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that a committed plan takes off its node."""

    task: Task
    reason: str
    preemptor: JobKey
    """The job that gets the room."""
    moves_to: str = ""
    """The node that the plan promises to it, if it finds another place."""
    action: str = ""
    """The action whose plan it is."""
