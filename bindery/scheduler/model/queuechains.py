"""The queues above each queue, worked out for all queues at once. Pure.

Used by queues.py. Linear in the number of queues: a chain is at most `MOST_QUEUE_LEVELS` long,
whatever parents people write.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from bindery.api.states import MOST_QUEUE_LEVELS
from bindery.scheduler.model.jobs import NO_ROW


class ChainFlaw(Enum):
    """Why the place of a queue in the tree cannot be used."""

    CYCLE = "it is its own ancestor"
    BELOW_CYCLE = "a queue above it is its own ancestor"
    TOO_DEEP = "it has too many queues above it"


@dataclass(frozen=True, slots=True)
class QueueChains:
    """The chains of all queues, and which of them cannot be used."""

    rows: tuple[tuple[int, ...], ...]
    """Queue row -> itself and the queues above it, bottom up.

    A queue that is too deep stands directly below the deepest ancestor that may have queues below
    it, so that what its pods hold still counts in all queues above that one. On a cycle the chain
    ends before it repeats.
    """
    flaws: dict[int, ChainFlaw]
    """Queue row -> its flaw; sound queues are left out."""


def trace(parents: Sequence[int]) -> QueueChains:
    """Return the chains of queues. `parents`: queue row -> row of its parent, or NO_ROW."""
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
        if at in place:
            cycle = path[place[at] :]
            del path[place[at] :]
            for index, row in enumerate(cycle):
                length = min(len(cycle), MOST_QUEUE_LEVELS)
                chains[row] = tuple(cycle[(index + n) % len(cycle)] for n in range(length))
                flaws[row] = ChainFlaw.CYCLE
        for row in reversed(path):
            _hang(row, parents[row], chains, flaws)
    return QueueChains(tuple(chains), flaws)


def _hang(
    row: int, parent: int, chains: list[tuple[int, ...]], flaws: dict[int, ChainFlaw]
) -> None:
    """Note the chain of `row` below `parent`, whose chain is known."""
    above = chains[parent] if parent != NO_ROW else ()
    chains[row] = (row, *above[-(MOST_QUEUE_LEVELS - 1) :])
    flaw = flaws.get(parent)
    if flaw is ChainFlaw.CYCLE:
        flaw = ChainFlaw.BELOW_CYCLE
    elif flaw is None and len(above) == MOST_QUEUE_LEVELS:
        flaw = ChainFlaw.TOO_DEEP
    if flaw is not None:
        flaws[row] = flaw
