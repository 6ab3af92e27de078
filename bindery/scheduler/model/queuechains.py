"""The ancestors of each queue, computed for all queues at once. Pure.

Used by queues.py. The time is linear in the number of queues, as a chain has at most
`MOST_QUEUE_LEVELS` rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from bindery.api.states import MOST_QUEUE_LEVELS
from bindery.scheduler.model.jobs import NO_ROW


class ChainFlaw(Enum):
    """Why the position of a queue in the tree is not valid."""

    CYCLE = "it is its own ancestor"
    BELOW_CYCLE = "a queue above it is its own ancestor"
    TOO_DEEP = "it has too many queues above it"


@dataclass(frozen=True, slots=True)
class QueueChains:
    """The chains of all queues, and their flaws."""

    rows: tuple[tuple[int, ...], ...]
    """Queue row -> the row itself and those of its ancestors, bottom up.

    The chain of a queue that is too deep continues at the deepest ancestor that may have children,
    so that its pods still count in all queues above that one. On a cycle the chain ends before it
    repeats.
    """
    flaws: dict[int, ChainFlaw]
    """Queue row -> its flaw; sound queues are left out."""


def trace(parents: Sequence[int]) -> QueueChains:
    """Return the chains of all queues. `parents`: queue row -> row of its parent, or NO_ROW."""
    chains: list[tuple[int, ...]] = [()] * len(parents)
    flaws: dict[int, ChainFlaw] = {}
    for start in range(len(parents)):
        path: list[int] = []
        place: dict[int, int] = {}
        at = start
        while at != NO_ROW and not chains[at] and at not in place:
            place[at] = len(path)
            path.append(at)
            at = parents[at]
        if at in place:  # the walk came back to its own path: the rest of the path is a cycle
            cycle = path[place[at] :]
            del path[place[at] :]
            for index, row in enumerate(cycle):
                length = min(len(cycle), MOST_QUEUE_LEVELS)
                chains[row] = tuple(cycle[(index + n) % len(cycle)] for n in range(length))
                flaws[row] = ChainFlaw.CYCLE
        # From the top down: a chain builds on the chain of its parent.
        for row in reversed(path):
            _hang(row, parents[row], chains, flaws)
    return QueueChains(tuple(chains), flaws)


def _hang(
    row: int, parent: int, chains: list[tuple[int, ...]], flaws: dict[int, ChainFlaw]
) -> None:
    """Set the chain of `row` from the known chain of its `parent`."""
    above = chains[parent] if parent != NO_ROW else ()
    chains[row] = (row, *above[-(MOST_QUEUE_LEVELS - 1) :])
    flaw = flaws.get(parent)
    if flaw is ChainFlaw.CYCLE:
        flaw = ChainFlaw.BELOW_CYCLE
    elif flaw is None and len(above) == MOST_QUEUE_LEVELS:
        flaw = ChainFlaw.TOO_DEEP
    if flaw is not None:
        flaws[row] = flaw
