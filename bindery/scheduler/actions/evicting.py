"""Evictions that make room for no other job: of a broken gang, or at the end of a run time."""

from collections.abc import Sequence

from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.model.jobs import NO_ROW, Job, Task, TaskStatus
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Commit


def running(job: Job) -> list[Task]:
    """Return the running pods of `job` on known nodes, in the order of placement."""
    tasks = [task for task in job.tasks.values() if task.status is TaskStatus.RUNNING]
    return sorted((task for task in tasks if task.row != NO_ROW), key=lambda task: task.order)


def end(session: Session, job: Job, reason: str) -> Commit | None:
    """Return the committed eviction of the running pods of `job` that are not spared.

    None if there are none, or a ledger refuses.
    """
    tasks = [task for task in running(job) if task.uid not in session.memory.spared]
    return evict(session, job, tasks, reason) if tasks else None


def evict(session: Session, job: Job, tasks: Sequence[Task], reason: str) -> Commit | None:
    """Return the committed eviction of `tasks`, last pod first; None if a ledger refuses."""
    with session.statement() as statement:
        try:
            for task in reversed(tasks):
                statement.evict(task, reason)
        except LedgerRefusalError:
            return None
        return Commit(job, session.commit(statement), is_gang=True)
