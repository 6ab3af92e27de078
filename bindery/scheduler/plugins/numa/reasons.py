"""Why nodes cannot align pods, for people."""

from collections import defaultdict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bindery.nodecore.prediction.arrays import ZoneArrays
from bindery.nodecore.prediction.reasons import refusal
from bindery.scheduler.plugins.numa.asks import Ask
from bindery.scheduler.plugins.numa.table import ZoneTable

_MOST_ASKED: Final = 8
"""Maximum number of nodes that are looked at; the others are counted."""
_MOST_NAMED: Final = 2
_MOST_KNOWN: Final = 1024


class Reasons:
    """Texts about the nodes of `table`; equal pods share theirs until a zone changes."""

    def __init__(self, table: ZoneTable) -> None:
        self._table = table
        self._known: dict[Ask, tuple[tuple[int, int], str]] = {}

    def text(self, ask: Ask, slots: NDArray[np.intp]) -> str | None:
        """Return why the nodes at `slots` would refuse pods with `ask`; None without nodes."""
        if not len(slots):
            return None
        moment = len(self._table.touched), len(slots)
        known = self._known.get(ask)
        if known is None or known[0] != moment:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[ask] = moment, self._text(ask, slots)
        return known[1]

    def common(self, ask: Ask, slots: NDArray[np.intp], nodes: ZoneArrays) -> str:
        """Return the reason of the nodes at `slots`; with the nodes' names if they differ."""
        groups = self._by_reason(ask, slots, nodes)
        if len(groups) == 1:
            return next(iter(groups))
        texts = [f"{_named(names)}: {why}" for why, names in groups.items() if why]
        return "; ".join(texts[:_MOST_NAMED])

    def _by_reason(
        self, ask: Ask, slots: NDArray[np.intp], nodes: ZoneArrays
    ) -> dict[str, list[str]]:
        """Return reason -> names of the first nodes by name."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        by_name = sorted((self._table.names[slot], int(slot)) for slot in slots)
        for name, slot in by_name[:_MOST_ASKED]:
            found[refusal(nodes.node(slot), ask.request)].append(name)
        return found

    def _text(self, ask: Ask, slots: NDArray[np.intp]) -> str:
        groups = self._by_reason(ask, slots, self._table.now.arrays)
        texts = [
            f"{_named(names)}: {why or 'room is promised to other pods'}"
            for why, names in groups.items()
        ]
        more = len(slots) - _MOST_ASKED
        return "; ".join([*texts, f"and {more} more nodes"] if more > 0 else texts)


def _named(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    text = ", ".join(names[:_MOST_NAMED])
    return f"{text} and {more} more" if more > 0 else text
