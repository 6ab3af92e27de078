"""Whether the queue of a gang may hold an exclusive domain, by limits and quotas.

A queue holds all of the exclusive domains of its gangs, as it holds their pods.
"""

import numpy as np
from numpy.typing import NDArray

from bindery.api.names import GPU_RESOURCE
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Job
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.resources import PODS
from bindery.scheduler.model.verdicts import Refusal
from bindery.scheduler.plugins.view import SessionView

Amounts = NDArray[np.int64]
"""Units by position on the resource axis: [resource]."""


def domain_amounts(session: SessionView, rows: BoolColumn) -> Amounts:
    """Return what the nodes at `rows` (mask) offer to queues. The number of pods is not counted."""
    offered: Amounts = session.offered[:, rows].sum(axis=1)
    offered[session.state.axis.index(PODS)] = 0
    return offered


def refusal(
    session: SessionView, job: Job, amounts: Amounts, name: str, *, is_pinned: bool, alone: bool
) -> Refusal | None:
    """Return why the queue of `job` may not hold `amounts` more, of the domain `name`.

    None: it may. `is_pinned`: whether pods of the gang are non-preemptible. `alone`: compare as if
    the queue held nothing.
    """
    ledger, shares, axis = session.queue_ledger, session.shares, session.state.axis
    reserved = session.reserved_in_queues
    bounds = [(JobReason.OVER_LIMIT, "limit", ledger.allocated, reserved, shares.limit)]
    if is_pinned:
        word = "quota for non-preemptible jobs"
        bounds.append(
            (JobReason.NON_PREEMPTIBLE_OVER_QUOTA, word, ledger.non_preemptible, None, shares.quota)
        )
    gpu = axis.index(GPU_RESOURCE)
    for reason, word, allocated, kept, most in bounds:
        for row in ledger.chains[session.queue_row(job)]:
            held = allocated[:, row] if kept is None else allocated[:, row] + kept[:, row]
            counted = amounts if alone else held + amounts
            over = np.flatnonzero((amounts > 0) & (counted > most[:, row]))
            if len(over):
                index = gpu if gpu in over else int(over[0])
                queue, granted = session.state.queues.entries[row].name, int(most[index, row])
                text = (
                    f"queue {queue} holds {axis.display(index, int(held[index]))} of its {word} of "
                    f"{axis.display(index, granted)} {axis.names[index]}, and the exclusive domain "
                    f"{name} has {axis.display(index, int(amounts[index]))}"
                )
                return Refusal(reason, text)
    return None
