"""The queues for users: rules, fair shares, holdings and requests.

The numbers are the shares and the ledger of a session, so users see the numbers of planning.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bindery.api import quantity
from bindery.api.names import DEFAULT_QUEUE, GPU_RESOURCE
from bindery.scheduler.model.holdings import runs_or_waits
from bindery.scheduler.model.resources import PODS
from bindery.scheduler.planning.session import Session


@dataclass(frozen=True, slots=True)
class ResourceShare:
    """One resource of a queue, in devices, cores or bytes. None: unlimited."""

    quota: float | None
    weight: float
    fair_share: float
    allocated: float
    """Held by pods of the queue and all queues below."""
    non_preemptible: float
    """The part of it that cannot be evicted."""
    requested: float
    """What its pods hold and what it waits for, together."""
    limit: float | None
    kept: float = 0.0
    """Room that is kept for later stages, exclusive domains and reservations, beside pods."""


@dataclass(frozen=True, slots=True)
class QueueShare:
    """A queue in the tree."""

    name: str
    parent: str | None
    depth: int
    """Number of queues above it."""
    priority: int
    problem: str
    """Why none of its jobs can be planned; empty if they can."""
    reclaimable: bool
    running: int
    """Number of its own gangs and single pods that run."""
    waiting: int
    """Number of its own gangs and single pods that wait."""
    resources: dict[str, ResourceShare]


@dataclass(frozen=True, slots=True)
class ClusterShares:
    """All queues, each before its children, and the total of resources."""

    total: dict[str, float]
    queues: tuple[QueueShare, ...]


def cluster_shares(session: Session) -> ClusterShares:
    """Return the whole tree; siblings are sorted by name."""
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
    """Return the queue at `row` and all queues above it, from the top down."""
    running, waiting = _gangs(session)
    chain = session.queue_ledger.chains[row][::-1]
    return tuple(
        _queue(session, at, depth, (running[at], waiting[at])) for depth, at in enumerate(chain)
    )


def _gangs(session: Session) -> tuple[Counter[int], Counter[int]]:
    """Return the numbers of running and of waiting gangs by queue row, as in its status."""
    running: Counter[int] = Counter()
    waiting: Counter[int] = Counter()
    for job in session.state.jobs.values():
        runs, waits = runs_or_waits(job)
        if runs or waits:
            row = session.queue_row(job)
            running[row] += runs
            waiting[row] += waits
    return running, waiting


def _is_shown(session: Session, row: int) -> bool:
    """Return False for the default queue without an object and without pods."""
    entry = session.state.queues.entries[row]
    if entry.name != DEFAULT_QUEUE or entry.created:
        return True
    return any(session.queue_row(job) == row for job in session.state.jobs.values() if job.tasks)


def _in_tree_order(session: Session) -> Iterator[tuple[int, int]]:
    """Yield (row, depth), parents first. Queues on a cycle come last, with depth 0."""
    entries, chains = session.state.queues.entries, session.queue_ledger.chains
    below: dict[int | None, list[int]] = {}
    for row in sorted(range(len(entries)), key=lambda row: entries[row].name):
        below.setdefault(chains[row][1] if len(chains[row]) > 1 else None, []).append(row)
    seen: set[int] = set()  # a cycle of parents has no root, so its queues are never reached
    stack = [(row, 0) for row in reversed(below.get(None, []))]
    while stack:
        row, depth = stack.pop()
        seen.add(row)
        yield row, depth
        stack.extend((child, depth + 1) for child in reversed(below.get(row, [])))
    yield from ((row, 0) for row in range(len(entries)) if row not in seen)


def _queue(session: Session, row: int, depth: int, gangs: tuple[int, int]) -> QueueShare:
    entry, axis = session.state.queues.entries[row], session.state.axis
    problem, beside_pods = session.queue_problem(row), session.account.of_queue(row)
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
            "gpu" if name == GPU_RESOURCE else name: _share(
                session, row, index, int(beside_pods[index])
            )
            for index, name in enumerate(axis.names)
            if name != PODS
        },
    )


def _share(session: Session, row: int, index: int, beside_pods: int) -> ResourceShare:
    shares, ledger = session.shares, session.queue_ledger
    reserved = session.reserved_in_queues
    kept = beside_pods + (0 if reserved is None else int(reserved[index, row]))
    scale = quantity.scale(session.state.axis.names[index])

    def wholes(amount: float) -> float | None:
        return None if np.isinf(amount) else float(amount) / scale

    held = float(ledger.allocated[index, row])
    return ResourceShare(
        quota=wholes(shares.quota[index, row]),
        weight=float(shares.weight[index, row]),
        fair_share=float(shares.fair[index, row]) / scale,
        allocated=(held - beside_pods) / scale,
        non_preemptible=float(ledger.non_preemptible[index, row]) / scale,
        requested=(held - beside_pods + float(shares.pending[index, row])) / scale,
        kept=kept / scale,
        limit=wholes(shares.limit[index, row]),
    )


@dataclass(frozen=True, slots=True)
class ShareChange:
    """One resource of a queue without and with what is submitted. None: there is no such queue."""

    queue: str
    resource: str
    before: ResourceShare | None
    after: ResourceShare | None


def share_changes(before: ClusterShares, after: ClusterShares) -> Iterator[ShareChange]:
    """Yield the shares that differ, in the order of the tree."""
    known = {queue.name: queue.resources for queue in before.queues}
    left = {queue.name for queue in after.queues}
    for queue in after.queues:
        for resource, share in queue.resources.items():
            old = known.get(queue.name, {}).get(resource)
            if _rounded(old) != _rounded(share) and (
                old is not None or share.requested or share.quota
            ):
                yield ShareChange(queue.name, resource, old, share)
    for name in known.keys() - left:
        for resource, share in known[name].items():
            yield ShareChange(name, resource, share, None)


def _rounded(share: ResourceShare | None) -> tuple[float | None, ...]:
    if share is None:
        return ()
    numbers = (share.quota, share.fair_share, share.allocated, share.limit)
    return tuple(None if number is None else round(number, 6) for number in numbers)
