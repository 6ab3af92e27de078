"""The present figures of all queues, for their trends. Pure."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from bindery.api import quantity
from bindery.api.gpus import MODEL_PREFIX
from bindery.api.names import GPU_RESOURCE
from bindery.api.shown import shown
from bindery.scheduler.fairness.division import Amounts
from bindery.scheduler.history.trends import (
    ALLOCATED,
    FAIR_SHARE,
    MOST_RESOURCES,
    PENDING,
    WAITING_GANGS,
    Figures,
    row_of,
)
from bindery.scheduler.model.holdings import runs_or_waits
from bindery.scheduler.model.jobs import NO_ROW
from bindery.scheduler.model.queues import rolled_up
from bindery.scheduler.model.resources import PODS, short_name
from bindery.scheduler.model.state import PlanState

_FIRST: Final = (GPU_RESOURCE, "cpu", "memory")
_GIB: Final = 2**30
_MOST_NAME: Final = 253


def figures_of(state: PlanState, fair: Amounts) -> Figures:
    """Return the figures of the queues that exist. `fair`: [resource, queue], ledger units."""
    table, count = state.queues, len(state.axis)
    waiting = np.zeros((1, len(table.entries)), dtype=np.int64)
    for job in state.waiting.values():
        row = table.rows.get(job.queue, NO_ROW)
        if row != NO_ROW:
            waiting[0, row] += runs_or_waits(job)[1]
    own = np.concatenate([table.allocated, table.pending, waiting])
    sums = rolled_up(own, table.chains()).astype(np.float64)
    deserved = np.zeros((count, len(table.entries)))
    deserved[: fair.shape[0], : fair.shape[1]] = fair
    names, amounts = [WAITING_GANGS], [sums[2 * count]]
    for index in _resources(state.axis.names, sums[: 2 * count]):
        resource = state.axis.names[index]
        unit = 1000 if quantity.scale(resource) > 1 else _GIB
        short = shown(short_name(resource), _MOST_NAME)
        names += (row_of(figure, short) for figure in (ALLOCATED, FAIR_SHARE, PENDING))
        columns = (sums[index], deserved[index], sums[count + index])
        amounts += (column / unit for column in columns)
    shown_rows = [row for row, entry in enumerate(table.entries) if entry.exists]
    queues = tuple(shown(table.entries[row].name, _MOST_NAME) for row in shown_rows)
    return Figures(queues, tuple(names), np.array(amounts)[:, shown_rows])


def _resources(names: Sequence[str], sums: Amounts) -> list[int]:
    """Return at most `MOST_RESOURCES` positions: the usual ones, then those with amounts."""
    first = [names.index(name) for name in _FIRST if name in names]
    used = np.flatnonzero(sums.any(axis=1)) % len(names)
    others = (
        index
        for index, name in enumerate(names)
        if name != PODS
        and not name.startswith(MODEL_PREFIX)
        and index not in first
        and index in used
    )
    return [*first, *sorted(others, key=names.__getitem__)][:MOST_RESOURCES]
