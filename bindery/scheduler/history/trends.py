"""Trends of queues: what they held, their fair share and what waited, in time slices. Pure.

A row of the history is a figure of a resource. The capacity of a row is the observed time, so that
held / capacity is the mean. Older slices are longer. Invariant: joining slices keeps the sums.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from bindery.scheduler.usage.formula import Amounts, History

SLICE_S: Final = 300.0
"""Length of the newest slices."""
GRAIN: Final = 8.0
"""A slice is at most its age divided by this, or `SLICE_S`: about 70 slices in a week."""
MOST_CELLS: Final = 60_000
"""Maximum number of figures: slices x rows x queues."""
MOST_QUEUES: Final = 1_000
MOST_RESOURCES: Final = 6

ALLOCATED: Final = "allocated"
FAIR_SHARE: Final = "fairShare"
PENDING: Final = "pending"
WAITING_GANGS: Final = "waitingGangs"
OF_RESOURCES: Final = (ALLOCATED, FAIR_SHARE, PENDING)
"""The figures that exist for each resource; the row is `FIGURE/RESOURCE`."""
MOST_ROWS: Final = len(OF_RESOURCES) * MOST_RESOURCES + 1
LEAST_ROWS: Final = len(OF_RESOURCES) + 1
"""Rows that stay in any case: waiting gangs, and the figures of the first resource."""
LEAST_SLICES: Final = 24
"""With fewer slices, there would rather be fewer rows."""


@dataclass(frozen=True)
class Figures:
    """The figures of all queues at one time, including those of all queues below."""

    queues: tuple[str, ...]
    rows: tuple[str, ...]
    amounts: Amounts
    """[row, queue], in devices, cores, GiB and numbers of gangs."""


def row_of(figure: str, resource: str) -> str:
    """Return the name of the row of `figure` for `resource`."""
    return f"{figure}/{resource}"


def observed(history: History, figures: Figures, since: float, now: float) -> History:
    """Return `history` with `figures`, which were valid from `since` until `now`."""
    elapsed_s = now - since
    new = History(
        figures.queues,
        figures.rows,
        np.array([since]),
        np.array([now]),
        np.full((1, len(figures.rows)), elapsed_s),
        figures.amounts[None].astype(np.float64) * elapsed_s,
    )
    return history.followed_by(new)


def faded(history: History, now: float, grain: float = GRAIN) -> History:
    """Return `history` with shorter slices joined: the older they are, the longer they become."""
    at = len(history) - 2
    while at >= 0:
        age = now - history.end[at + 1]
        most = max(SLICE_S, age / grain)
        if history.end[at + 1] - history.start[at] <= most:
            history = history.joined(at)
        at -= 1
    return history


def fitting(history: History, now: float) -> History:
    """Return `history` within the bounds, with fewer slices, rows and queues if necessary."""
    history = faded(history, now)
    # The rows of the newest figures come first.
    history = history.arranged(_busiest(history), history.resources[:MOST_ROWS])
    grain = GRAIN
    while len(history) > 1 and history.held.size > MOST_CELLS:
        grain /= 2
        if len(history) <= LEAST_SLICES and len(history.resources) > LEAST_ROWS:
            history = history.arranged(history.queues, history.resources[:LEAST_ROWS])
        elif grain > 1 / GRAIN:
            history = faded(history, now, grain)
        else:
            history = history.coarsened(1)
    return history


def _busiest(history: History) -> tuple[str, ...]:
    """Return the queues with amounts, at most `MOST_QUEUES`: those with the largest parts."""
    totals = history.held.sum(axis=0)
    sums = totals.sum(axis=1, keepdims=True)
    parts = np.divide(totals, sums, out=np.zeros_like(totals), where=sums > 0).sum(axis=0)
    order = np.argsort(-parts, kind="stable")[:MOST_QUEUES]
    return tuple(history.queues[index] for index in sorted(order) if parts[index] > 0)
