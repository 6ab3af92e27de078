"""Drops the rows of queues that do not exist. Users may name any queue, and each takes a column."""

from bindery.scheduler.model.state import PlanState

MOST_UNKNOWN_QUEUES = 256
"""Maximum number of rows of queues that do not exist and that no pod or job names."""


def drop_unknown_queues(state: PlanState) -> bool:
    """Drop the rows of such queues if there are too many; return whether all sums are now empty."""
    queues = state.queues
    if sum(not entry.exists for entry in queues.entries) <= MOST_UNKNOWN_QUEUES:
        return False
    named = {task.queue for task in state.tasks.values()}
    for job in state.jobs.values():
        named |= {job.queue, job.named_queue}
    dead = sum(not entry.exists and entry.name not in named for entry in queues.entries)
    if dead <= MOST_UNKNOWN_QUEUES:
        return False
    queues.compact(named)
    return True
