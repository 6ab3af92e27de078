"""Extension points that decide about queues, jobs and pods: which is next, and which must wait.

The actions and the solver consult them. Sort keys of several plugins are compared in the configured
order; the first difference decides.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.model.verdicts import Refusal, RoomNote, SortKey
from bindery.scheduler.plugins.view import SessionView

# ---- order ----


@runtime_checkable
class QueueOrder(Protocol):
    """Orders queues. Called again after each job of a queue."""

    def queue_key(self, session: SessionView, queue_row: int, job: Job) -> SortKey:
        """Return the sort key of the queue at `queue_row`; `job` is the next job of the queue.

        Called at every level of the tree where several queues have jobs. The key may depend on the
        amounts of this queue, but not on those of other queues.
        """


@runtime_checkable
class VictimOrder(Protocol):
    """Orders queues for the choice of victims, for a `QueueOrder` that counts requests.

    The solver takes the next victim from the queue with the largest key. For a `QueueOrder` without
    this method, it uses `queue_key` with the job of the next victim.
    """

    def victim_key(
        self, session: SessionView, queue_row: int, job: Job, released: Mapping[int, int]
    ) -> SortKey:
        """Return the sort key of the queue at `queue_row`; its next victim is a pod of `job`.

        `released` has the amounts that `job` would release (position on the resource axis ->
        units). The queue's amounts no longer include the plan's evictions so far.
        """


@runtime_checkable
class JobOrder(Protocol):
    """Orders the jobs of a queue. Called again after each placement of a job."""

    def job_key(self, session: SessionView, job: Job) -> SortKey:
        """Return the sort key of `job`."""


@runtime_checkable
class PodOrder(Protocol):
    """Orders the pods of a job."""

    def pod_key(self, session: SessionView, task: Task) -> SortKey:
        """Return the sort key of `task`."""


# ---- gates ----


@runtime_checkable
class JobValid(Protocol):
    """Refuses jobs before they are planned."""

    def invalid(self, session: SessionView, job: Job) -> Refusal | None:
        """Return why `job` cannot be planned, whatever is free; None if it can.

        During a session the answer must depend only on the pods of `job` and their status.
        """


@runtime_checkable
class TaskValid(Protocol):
    """Refuses single pods before they are planned."""

    def invalid_task(self, session: SessionView, task: Task) -> Refusal | None:
        """Return why `task` cannot be planned, whatever is free; None if it can. Must be fast.

        Also called for running pods before they are moved; `session.pod` is None for those.
        """


@runtime_checkable
class CapacityGate(Protocol):
    """Refuses more pods of a job, for example above a limit."""

    def over_capacity(
        self, session: SessionView, job: Job, tasks: Sequence[Task]
    ) -> Refusal | None:
        """Return why `tasks` of `job` may not be placed now; None if they may."""


@runtime_checkable
class JobReady(Protocol):
    """Decides whether a job has enough placed pods for a commit. All plugins must agree."""

    def is_ready(self, session: SessionView, job: Job) -> bool:
        """Return whether the active pods of `job`, planned ones included, may be bound."""


@runtime_checkable
class JobPipelined(Protocol):
    """Decides whether promises to a job are kept in this session. All plugins must agree."""

    def is_pipelined(self, session: SessionView, job: Job) -> bool:
        """Return whether `job` has enough placed and promised pods to keep its promises."""


@runtime_checkable
class WaitsForRelease(Protocol):
    """Delays a gang with room on its nodes until other pods have gone."""

    def waits_for_release(self, session: SessionView, job: Job, tasks: Sequence[Task]) -> bool:
        """Return whether `tasks` of `job`, just placed, must wait for releasing pods.

        If so, their nodes are promised to them. Called for each gang that has all its places.
        """


# ---- making room: consulted by reclaim, preempt and consolidation ----


@runtime_checkable
class JobStarving(Protocol):
    """Decides whether other pods may be evicted or moved for a job. All plugins must agree."""

    def is_starving(self, session: SessionView, job: Job) -> bool:
        """Return whether room may be made for `job`."""


@runtime_checkable
class VictimFilter(Protocol):
    """Decides which pods may be victims. A veto is final: no other plugin can undo it.

    Called for every possible victim of every job that needs room: must be fast.
    """

    def may_evict(self, session: SessionView, victim: Task, preemptor: Job, action: str) -> bool:
        """Return whether `action` may evict or move `victim` for `preemptor`."""


# ---- explanations ----


@runtime_checkable
class RoomExplanation(Protocol):
    """Adds to the reason of a job for which there is no room, usually with `JobStarving`."""

    def explain_room(self, session: SessionView, job: Job) -> RoomNote | None:
        """Return a note about room that is made or expected for `job`, or None."""


@runtime_checkable
class WaitExplanation(Protocol):
    """Adds to the message of a waiting pod."""

    def explain_wait(self, session: SessionView, job: Job, task: Task, message: str) -> str | None:
        """Return a sentence to append to `message`, the result of the last transaction, or None."""
