"""The growth of fragmentation by each kind of pod on each node, computed once for each node state.

Nodes with equal free devices, free CPU and allowed kinds share their values, and a node that
returns to an earlier state finds them again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.plugins.fragmentation.gradient import (
    Ask,
    IntColumn,
    NodeColumns,
    TypicalWorkload,
    buckets,
    fragmentation,
    growth,
)

T = TypeVar("T", bound=np.generic)

MOST_STATES: Final = 8192
"""Number of states above which the table forgets the states of no node."""
MOST_ASKS: Final = 1024
"""Number of kinds of pods above which the table forgets the values of all kinds."""
_UNKNOWN: Final = int(np.iinfo(np.int64).min)
"""A growth that is not computed yet."""


@dataclass(eq=False, slots=True)
class _Growths:
    """The values of one kind of pod [state]."""

    growth: IntColumn
    bucket: IntColumn


class GrowthTable:
    """Growths of F by kind of pod; only states of nodes that are new are computed.

    Invariant: `growths` returns what `gradient.growth` returns for the same state.
    """

    def __init__(self, workload: TypicalWorkload, nodes: NodeColumns, most_states: int = 0) -> None:
        """`most_states`: limit on the number of states; 0 for the default."""
        self.workload = workload
        self._devices = len(nodes.free)
        self._unit = max(workload.total_weight, 1) * workload.whole
        self._most_states = most_states or max(MOST_STATES, 2 * nodes.count)
        self._packed = _packed(nodes)
        """The bytes of the state of each node [node, byte]."""
        self._numbers: dict[bytes, int] = {}
        """State -> its number."""
        self._states = nodes.take(np.zeros(0, dtype=np.intp))
        """The states [.., number], with room for more."""
        self._lost: IntColumn = np.zeros(0, dtype=np.int64)
        """F in each state [number], with room for more."""
        self._growths: dict[tuple[int, int, int], _Growths] = {}
        """CPU, portion and devices of a pod -> its values; these may lack the newest states."""
        self._of_node = self._numbered(self._packed, nodes)
        """The number of the state of each node [node]."""

    @property
    def lost(self) -> IntColumn:
        """F of each node [node]."""
        return self._lost[self._of_node]

    def is_for(self, nodes: NodeColumns) -> bool:
        """Return whether the table has as many nodes and devices as `nodes`."""
        return (self._devices, len(self._of_node)) == nodes.free.shape

    def update(self, rows: Rows, now: NodeColumns) -> None:
        """Set the state of the nodes at `rows` to `now` [.., position in rows]."""
        packed = _packed(now)
        differs = np.flatnonzero((self._packed[rows] != packed).any(axis=1))
        if not len(differs):
            return
        changed = rows[differs]
        self._packed[changed] = packed[differs]
        self._of_node[changed] = self._numbered(packed[differs], now, differs)
        if len(self._numbers) > self._most_states:
            self._forget_unused()

    def growths(self, ask: Ask, rows: Rows) -> IntColumn:
        """Return the growth of F by placing `ask` on each of `rows` [position in rows]."""
        found = np.empty(len(rows), dtype=np.int64)
        for portion, at in _by_portion(ask):
            numbers = self._of_node[rows[at]]
            found[at] = self._known(ask, portion, numbers).growth[numbers]
        return found

    def buckets(self, ask: Ask, rows: Rows) -> IntColumn:
        """Return the score of 0 to 100 of each of `rows` for `ask`; see `gradient.buckets`."""
        if isinstance(ask.portion, int):  # the usual case, once for each pod that is placed
            numbers = self._of_node[rows]
            return self._known(ask, ask.portion, numbers).bucket[numbers]
        found = np.empty(len(rows), dtype=np.int64)
        for portion, at in _by_portion(ask):
            numbers = self._of_node[rows[at]]
            found[at] = self._known(ask, portion, numbers).bucket[numbers]
        return found

    def _known(self, ask: Ask, portion: int, numbers: NDArray[np.intp]) -> _Growths:
        """Return the values for `ask` with this `portion`, computed at least for `numbers`."""
        key = (ask.cpu, portion, ask.devices)
        kept = self._growths.get(key)
        if kept is None:
            if len(self._growths) >= MOST_ASKS:
                self._growths.clear()
            empty: IntColumn = np.zeros(0, dtype=np.int64)
            kept = self._growths[key] = _Growths(empty, empty)
        if len(kept.growth) < len(self._lost):
            kept.growth = _longer(kept.growth, len(self._lost), _UNKNOWN)
            kept.bucket = _longer(kept.bucket, len(self._lost))
        unknown = kept.growth[numbers] == _UNKNOWN
        if unknown.any():
            new = np.unique(numbers[unknown])
            here = Ask(ask.cpu, portion, ask.devices)
            values, _ = growth(self.workload, self._states.take(new), here, self._lost[new])
            kept.growth[new] = values
            kept.bucket[new] = buckets(values, self._unit)
        return kept

    def _numbered(
        self, packed: NDArray[np.uint8], nodes: NodeColumns, at: NDArray[np.intp] | None = None
    ) -> NDArray[np.intp]:
        """Return the number of the state of each row of `packed`; new states are added.

        `nodes`: the states as columns; `at`: the column of each row of `packed`, if not the same.
        """
        known, width, raw = self._numbers, packed.shape[1], packed.tobytes()
        keys = [raw[start : start + width] for start in range(0, len(raw), width)]
        new: list[int] = []
        for position, key in enumerate(keys):
            if key not in known:
                known[key] = len(known)
                new.append(position)
        if new:
            self._add(nodes.take(np.array(new) if at is None else at[new]))
        return np.fromiter((known[key] for key in keys), np.intp, len(keys))

    def _add(self, states: NodeColumns) -> None:
        """Add the newest `states`, which have their numbers already."""
        count, old = len(self._numbers), self._states
        if len(self._lost) < count:
            most = 2 * count  # a further state is seldom a copy of all
            self._lost = _longer(self._lost, most)
            self._states = old = NodeColumns(
                _longer(old.free, most), _longer(old.cpu, most), _longer(old.allowed, most)
            )
        new = slice(count - states.count, count)
        old.free[:, new], old.cpu[new], old.allowed[:, new] = (
            states.free,
            states.cpu,
            states.allowed,
        )
        self._lost[new] = fragmentation(self.workload, states)

    def _forget_unused(self) -> None:
        """Forget the states that no node has."""
        used, self._of_node = np.unique(self._of_node, return_inverse=True)
        names = list(self._numbers)
        self._numbers = {names[old]: number for number, old in enumerate(used)}
        self._states, self._lost = self._states.take(used), self._lost[used]
        for kept in self._growths.values():
            known = used[used < len(kept.growth)]  # ascending, so numbers stay in order
            kept.growth, kept.bucket = kept.growth[known], kept.bucket[known]


def _longer(array: NDArray[T], length: int, value: int = 0) -> NDArray[T]:
    """Return `array` with a last axis of `length`, filled up with `value`."""
    longer = np.full((*array.shape[:-1], length), value, dtype=array.dtype)
    longer[..., : array.shape[-1]] = array
    return longer


def _packed(nodes: NodeColumns) -> NDArray[np.uint8]:
    """Return the bytes of the state of each of `nodes` [node, byte]."""
    parts: Sequence[NDArray[np.generic]] = (nodes.free.T, nodes.cpu[:, None], nodes.allowed.T)
    return np.concatenate(
        [np.ascontiguousarray(part).view(np.uint8) for part in parts if part.shape[1]], axis=1
    )


def _by_portion(ask: Ask) -> Sequence[tuple[int, NDArray[np.intp] | slice]]:
    """Return each portion that `ask` has on some nodes, with the positions of these nodes."""
    if isinstance(ask.portion, int):
        return [(ask.portion, slice(None))]
    return [(int(each), np.flatnonzero(ask.portion == each)) for each in np.unique(ask.portion)]
