"""The growth of fragmentation by each kind of pod on each node, kept until the node changes."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.plugins.fragmentation.gradient import (
    Ask,
    IntColumn,
    NodeColumns,
    Workload,
    fragmentation,
    growth,
)


@dataclass(eq=False)
class _Growths:
    """The growths by one kind of pod [node]."""

    values: IntColumn
    seen: IntColumn
    """The version of each node at which its value was computed; 0 for never."""


@dataclass(eq=False)
class GrowthTable:
    """Growths of F by kind of pod; only the entries of changed nodes are computed again.

    Invariant: `growths` returns what `gradient.growth` returns for the same state.
    """

    workload: Workload
    nodes: NodeColumns
    """The state of all nodes; the table owns the arrays."""
    _version: IntColumn = field(init=False)
    _lost: IntColumn = field(init=False)
    _growths: dict[tuple[int, int, int, int], _Growths] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._version = np.ones(self.nodes.count, dtype=np.int64)
        self._lost = fragmentation(self.workload, self.nodes)

    @property
    def lost(self) -> IntColumn:
        """F of each node [node]."""
        return self._lost

    def update(self, rows: Rows, now: NodeColumns) -> None:
        """Set the state of the nodes at `rows` to `now` [.., position in rows]."""
        old = self.nodes
        differs = (old.free[:, rows] != now.free).any(axis=0)
        differs |= old.cpu[rows] != now.cpu
        differs |= (old.allowed[:, rows] != now.allowed).any(axis=0)
        if not differs.any():
            return
        changed, state = rows[differs], now.take(differs)
        old.free[:, changed], old.cpu[changed] = state.free, state.cpu
        old.allowed[:, changed] = state.allowed
        self._version[changed] += 1
        self._lost[changed] = fragmentation(self.workload, state)

    def growths(self, ask: Ask, rows: Rows, memory_mib: int = 0) -> IntColumn:
        """Return the growth of F by placing `ask` on each of `rows` [position in rows].

        `memory_mib`: of a share by memory; its portion is an array [position in rows].
        """
        by_memory = not isinstance(ask.portion, int)
        key = (ask.cpu, 0 if by_memory else int(ask.portion), ask.devices, memory_mib)
        kept = self._growths.get(key)
        if kept is None:
            empty: NDArray[np.int64] = np.zeros(self.nodes.count, dtype=np.int64)
            kept = self._growths[key] = _Growths(empty, empty.copy())
        is_stale = kept.seen[rows] != self._version[rows]
        if is_stale.any():
            stale = rows[is_stale]
            portion = ask.portion if isinstance(ask.portion, int) else ask.portion[is_stale]
            here = Ask(ask.cpu, portion, ask.devices)
            values, _ = growth(self.workload, self.nodes.take(stale), here, self._lost[stale])
            kept.values[stale] = values
            kept.seen[stale] = self._version[stale]
        return kept.values[rows]
