"""Faults and warnings of queues. Pure.

Called by `queues.py` when a queue has changed. The gangs of a queue with a fault wait, and so do
those of the queues below it. A warning does not change planning.
"""

from dataclasses import dataclass

import numpy as np

from bindery.api.states import MOST_QUEUE_LEVELS
from bindery.scheduler.model.queuechains import ChainFlaw
from bindery.scheduler.model.queues import NO_LIMIT, Amounts, QueueTable

_MOST_NAMED = 8
"""Maximum number of queues in the message about a cycle."""


@dataclass(frozen=True, slots=True)
class QueueFinding:
    """One fault or warning, with a text for people."""

    reason: str
    """One CamelCase word."""
    message: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings about one queue."""

    fault: QueueFinding | None = None
    """Why the gangs of the queue wait; None if it has no fault."""
    warnings: tuple[QueueFinding, ...] = ()


def verdicts(queues: QueueTable) -> dict[str, Verdict]:
    """Return the verdict on each queue, by name."""
    faults = {row: _own_fault(queues, row) for row in range(len(queues.entries))}
    quota, _, limit = queues.rules()
    claimed = _claimed(queues)
    found: dict[str, Verdict] = {}
    for row, entry in enumerate(queues.entries):
        fault = faults[row] or _fault_above(queues, row, faults)
        warnings = [] if fault else _warnings(queues, row, quota, limit, claimed)
        found[entry.name] = Verdict(fault, tuple(warnings))
    return found


def _own_fault(queues: QueueTable, row: int) -> QueueFinding | None:
    entry = queues.entries[row]
    if entry.invalid is not None:
        return QueueFinding("Invalid", entry.invalid)
    flaw = queues.flaw(row)
    if flaw is ChainFlaw.CYCLE:
        names = [queues.entries[at].name for at in (*queues.chain(row), row)]
        if len(names) > _MOST_NAMED:
            names[_MOST_NAMED - 1 : -1] = ["…"]
        way = " is below ".join(names)
        return QueueFinding("Cycle", f"spec.parent: the queue is its own ancestor: {way}")
    if flaw is ChainFlaw.TOO_DEEP:
        text = f"spec.parent: the queue is more than {MOST_QUEUE_LEVELS} levels deep"
        return QueueFinding("TooDeep", text)
    if entry.parent is not None and not queues.entries[queues.rows[entry.parent]].exists:
        return QueueFinding(
            "ParentDoesNotExist", f"spec.parent: queue {entry.parent} does not exist"
        )
    return None


def _fault_above(
    queues: QueueTable, row: int, faults: dict[int, QueueFinding | None]
) -> QueueFinding | None:
    for at in queues.chain(row)[1:]:
        fault = faults[at]
        if fault is not None:
            name = queues.entries[at].name
            return QueueFinding("ParentNotReady", f"queue {name} above it: {fault.message}")
    return None


def _claimed(queues: QueueTable) -> Amounts:
    """Return, for each queue, the sum of the explicit quotas of its children."""
    claimed = np.zeros((len(queues.axis), len(queues.entries)))
    for row, entry in enumerate(queues.entries):
        if entry.parent is not None:
            for index, rule in queues.ruled(row).items():
                if rule.has_own_quota:
                    claimed[index, queues.rows[entry.parent]] += rule.quota
    return claimed


def _warnings(
    queues: QueueTable, row: int, quota: Amounts, limit: Amounts, claimed: Amounts
) -> list[QueueFinding]:
    entry, found = queues.entries[row], []
    for index, rule in sorted(queues.ruled(row).items()):
        name = queues.axis.names[index]
        if rule.has_own_quota and rule.quota != NO_LIMIT and rule.quota > limit[index, row]:
            own, most = (_shown(queues, index, it) for it in (rule.quota, limit[index, row]))
            text = f"its quota of {own} {name} is above its own limit of {most}"
            found.append(QueueFinding("QuotaAboveLimit", text))
        above = queues.rows[entry.parent] if entry.parent is not None else None
        if above is not None and rule.has_own_quota and rule.quota > quota[index, above]:
            own, most = (_shown(queues, index, it) for it in (rule.quota, quota[index, above]))
            text = f"its quota of {own} {name} is above the {most} of queue {entry.parent}"
            found.append(QueueFinding("QuotaAboveParent", text))
    for index in np.flatnonzero(claimed[:, row] > quota[:, row]).tolist():
        name = queues.axis.names[index]
        asked, own = (_shown(queues, index, it) for it in (claimed[index, row], quota[index, row]))
        text = f"its child queues have quotas of {asked} {name} in total, but its own is {own}"
        found.append(QueueFinding("QuotaBelowChildren", text))
    return found


def _shown(queues: QueueTable, index: int, amount: float) -> str:
    return "unlimited" if amount == NO_LIMIT else queues.axis.display(index, int(amount))
