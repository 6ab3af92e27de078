"""The queues as people read them: what each is granted, deserves, holds and asks for.

Taken from a session's own shares and ledger, so that what is shown is what planning goes by.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bindery.api import quantity
from bindery.api.names import DEFAULT_QUEUE, GPU_RESOURCE
from bindery.scheduler.model.resources import PODS
from bindery.scheduler.planning.session import Session


@dataclass(frozen=True, slots=True)
class ResourceShare:
    """A queue and one resource, in devices, cores and bytes. None: unlimited."""

    quota: float | None
    weight: float
    fair_share: float
    allocated: float
    """What it holds, with all queues below."""
    non_preemptible: float
    """The part of it that cannot be evicted for others."""
    requested: float
    """What it holds and what waits in it."""
    limit: float | None


@dataclass(frozen=True, slots=True)
class QueueShare:
    """A queue in the tree."""

    name: str
    parent: str | None
    depth: int
    """How many queues are above it."""
    priority: int
    problem: str
    """Why nothing of it can be planned; empty if it can."""
    reclaimable: bool
    running: int
    """How many of its own gangs have what they need."""
    waiting: int
    """How many of its own gangs wait."""
    resources: dict[str, ResourceShare]


@dataclass(frozen=True, slots=True)
class ClusterShares:
    """All queues, each before those below it, and what there is to divide."""

    total: dict[str, float]
    queues: tuple[QueueShare, ...]


def cluster_shares(session: Session) -> ClusterShares:
    """Return the whole tree; siblings in the order of their names."""
    axis = session.state.axis
    running, waiting = _gangs(session)
    queues = tuple(
        _queue(session, row, depth, (running[row], waiting[row]))
        for row, depth in _in_tree_order(session)
        if _is_shown(session, row)
    )
    total = axis.in_wholes(session.shares.total)
    return ClusterShares({name: amount for name, amount in total.items() if amount}, queues)


def chain_shares(session: Session, row: int) -> tuple[QueueShare, ...]:
    """Return the queue at `row` and all above it, from the top down."""
    running, waiting = _gangs(session)
    chain = session.queue_ledger.chains[row][::-1]
    return tuple(
        _queue(session, at, depth, (running[at], waiting[at])) for depth, at in enumerate(chain)
    )


def _gangs(session: Session) -> tuple[Counter[int], Counter[int]]:
    """Return how many gangs run, and how many wait, by queue row."""
    running: Counter[int] = Counter()
    waiting: Counter[int] = Counter()
    for job in session.state.jobs.values():
        if job.tasks:
            (running if job.is_satisfied else waiting)[session.queue_row(job)] += 1
    return running, waiting


def _is_shown(session: Session, row: int) -> bool:
    """Return whether the queue is more than a default that nobody made and nobody uses."""
    entry = session.state.queues.entries[row]
    if entry.name != DEFAULT_QUEUE or entry.created:
        return True
    return any(session.queue_row(job) == row for job in session.state.jobs.values() if job.tasks)


def _in_tree_order(session: Session) -> Iterator[tuple[int, int]]:
    """Yield (row, depth); queues on a cycle come last, each by itself."""
    entries, chains = session.state.queues.entries, session.queue_ledger.chains
    below: dict[int | None, list[int]] = {}
    for row in sorted(range(len(entries)), key=lambda row: entries[row].name):
        below.setdefault(chains[row][1] if len(chains[row]) > 1 else None, []).append(row)
    seen: set[int] = set()
    stack = [(row, 0) for row in reversed(below.get(None, []))]
    while stack:
        row, depth = stack.pop()
        seen.add(row)
        yield row, depth
        stack.extend((child, depth + 1) for child in reversed(below.get(row, [])))
    yield from ((row, 0) for row in range(len(entries)) if row not in seen)


def _queue(session: Session, row: int, depth: int, gangs: tuple[int, int]) -> QueueShare:
    entry, axis = session.state.queues.entries[row], session.state.axis
    problem = session.queue_problem(row)
    return QueueShare(
        name=entry.name,
        parent=entry.parent,
        depth=depth,
        priority=entry.priority,
        problem="" if problem is None else f"{problem[0]}: {problem[1]}",
        reclaimable=entry.reclaimable,
        running=gangs[0],
        waiting=gangs[1],
        resources={
            "gpu" if name == GPU_RESOURCE else name: _share(session, row, index)
            for index, name in enumerate(axis.names)
            if name != PODS
        },
    )


def _share(session: Session, row: int, index: int) -> ResourceShare:
    shares, ledger = session.shares, session.queue_ledger
    scale = quantity.scale(session.state.axis.names[index])

    def wholes(amount: float) -> float | None:
        return None if np.isinf(amount) else float(amount) / scale

    allocated = float(ledger.allocated[index, row])
    return ResourceShare(
        quota=wholes(shares.quota[index, row]),
        weight=float(shares.weight[index, row]),
        fair_share=float(shares.fair[index, row]) / scale,
        allocated=allocated / scale,
        non_preemptible=float(ledger.non_preemptible[index, row]) / scale,
        requested=(allocated + float(shares.pending[index, row])) / scale,
        limit=wholes(shares.limit[index, row]),
    )
