"""The state of a queue: its rules, shares and holdings, and its waiting jobs with their reasons.

`bindery explain queue/NAME` calls this. It runs one cycle, as for a job.
"""

from dataclasses import dataclass

from bindery.scheduler.engine import Engine
from bindery.scheduler.insight.advice import Changed, advice
from bindery.scheduler.insight.order import Turns
from bindery.scheduler.insight.shares import QueueShare, chain_shares
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.planning.session import Session


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that still waits after the next cycle."""

    job: JobKey
    queue: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class QueueExplanation:
    """The state of a queue."""

    queue: str
    problem: str
    """Why none of its jobs can be planned; empty if they can."""
    shares: tuple[QueueShare, ...]
    """The queue and those above it, from the top down."""
    below: tuple[str, ...]
    """The names of the queues below it, sorted."""
    would_start: tuple[JobKey, ...]
    """Jobs of these queues that the next cycle would place pods for."""
    waiting: tuple[WaitingJob, ...]
    """The other jobs, in the order of serving; jobs without a turn come last."""
    advice: str


def explain_queue(engine: Engine, name: str) -> QueueExplanation:
    """Run a cycle, undo it, and return the state of the queue `name`, which must exist."""
    with engine.session() as session:
        shares = chain_shares(session, session.state.queues.row(name))
        below = _below(session, name)
    order: list[JobKey] = []
    drafts = engine.trial(lambda session: order.extend(Turns(session).order))
    started = {task.job for draft in drafts for task in draft.tasks}
    jobs, reports = engine.cluster.state.jobs, engine.report.jobs
    ours = {key for key, job in jobs.items() if job.queue in {name, *below}}
    turns = {key: place for place, key in enumerate(order)}
    waiting = sorted(
        (key for key in ours & reports.keys() if key not in started and reports[key].reason),
        key=lambda key: (turns.get(key, len(turns)), key),
    )
    problem = shares[-1].problem
    return QueueExplanation(
        queue=name,
        problem=problem,
        shares=shares,
        below=below,
        would_start=tuple(sorted(started & ours)),
        waiting=tuple(
            WaitingJob(key, jobs[key].queue, reports[key].reason, reports[key].message)
            for key in waiting
        ),
        advice=advice(
            problem.partition(":")[0],
            where=Changed.POD_GROUP,
            min_member=0,
            budget_blocks=False,
        ),
    )


def _below(session: Session, name: str) -> tuple[str, ...]:
    """Return the names of the queues below `name`, at any depth."""
    entries, chains = session.state.queues.entries, session.queue_ledger.chains
    row = session.state.queues.row(name)
    return tuple(sorted(entries[chain[0]].name for chain in chains if row in chain[1:]))
