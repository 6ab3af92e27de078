"""Predictions for pods on all nodes, kept over sessions.

Equal pods share their vectors. After an operation only the touched nodes are predicted again: a few
nodes one by one, with the results of equal nodes in equal states remembered, and many at once in
arrays. The score prefers few zones, then aligned ones, then near ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bindery.api.numaplacement import NumaPlacement
from bindery.nodecore.masks import nodes_of
from bindery.nodecore.prediction import plain, vectors
from bindery.nodecore.prediction.arrays import MAX_ZONES, POLICIES, ZoneArrays
from bindery.nodecore.prediction.zones import NodeZones, is_memory
from bindery.nodecore.topology import policies
from bindery.scheduler.plugins.numa.amounts import HeldZones
from bindery.scheduler.plugins.numa.asks import Ask
from bindery.scheduler.plugins.numa.table import ZoneTable

ALIGNED: Final = 100.0
"""The score of a node that gives a pod one zone."""
_UNALIGNED: Final = 60.0
"""The same if the topology manager does not prefer it; divided by the number of zones."""
_FAR: Final = 4.0
"""What the most distant zones lose; nearer ones lose less."""
_LOCAL: Final = 10.0
"""The distance of a zone to itself."""
_FARTHEST: Final = 254.0
_FEW: Final = 8
"""Up to so many touched nodes are predicted one by one."""
_MOST_VECTORS: Final = 512
_MOST_OUTCOMES: Final = 1 << 16
_NONE: Final = POLICIES.index(policies.NONE)
_ZONE_BITS: Final = np.arange(MAX_ZONES, dtype=np.uint8)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Slots = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class NodePrediction:
    """What one node will decide about a pod."""

    admit: bool
    reason: str
    """The kubelet's reason against it; "" if the pod is admitted."""
    score: float
    part: HeldZones
    """What the pod takes."""


class AskVectors:
    """Which nodes admit pods with one ask, and how well: by slot."""

    def __init__(self, size: int) -> None:
        self.seen = 0
        """How much of the table's log is in the vectors."""
        self.now: Bools = np.ones(size, dtype=np.bool_)
        self.later: Bools = np.ones(size, dtype=np.bool_)
        self.scores: Floats = np.zeros(size)
        """0 for a node that does not admit the pod now."""
        self.later_scores: Floats = np.zeros(size)

    def write(self, slots: Slots | int, now: tuple[Bools | bool, Floats | float]) -> None:
        """Set the predictions for nodes that are the same now and later."""
        self.now[slots], self.scores[slots] = now
        self.later[slots], self.later_scores[slots] = now

    def write_later(self, slots: Slots | int, later: tuple[Bools | bool, Floats | float]) -> None:
        """Set the predictions for the time after all releases."""
        self.later[slots], self.later_scores[slots] = later


class Predictor:
    """Predicts on the arrays of `table`."""

    def __init__(self, table: ZoneTable) -> None:
        self._table = table
        self._vectors: dict[Ask, AskVectors] = {}
        self._outcomes: dict[tuple[Ask, int, bytes], NodePrediction] = {}
        self._hopeless: dict[Ask, Bools] = {}
        self._data: dict[tuple[HeldZones, tuple[int, ...]], Mapping[str, Any]] = {}
        self._epoch = -1
        self._version = -1
        self.numbers = count(1)
        """The numbers of planned pods; they grow over sessions."""

    def outcome(self, ask: Ask, slot: int, *, later: bool) -> NodePrediction:
        """Return what the node at `slot` will decide, now or after all releases."""
        self._start_again()
        table = self._table
        promised = not later and bool(table.apart[slot])
        state = (table.later if later else table.now).key(slot)
        if promised:  # room that is promised to others must stay free
            state += table.later.key(slot)
        key = ask, table.kinds[slot], state
        found = self._outcomes.get(key)
        if found is None:
            if len(self._outcomes) >= _MOST_OUTCOMES:
                self._outcomes.clear()
            found = self._outcomes[key] = self._predicted(ask, slot, later, promised)
        return found

    def vectors(self, ask: Ask) -> AskVectors:
        """Return the predictions for all nodes, up to date."""
        self._start_again()
        table, found = self._table, self._vectors.get(ask)
        if found is None or len(found.now) != len(table.apart):
            found = self._new(ask)
        if found.seen < len(table.touched):
            slots = list(dict.fromkeys(table.touched[found.seen :]))
            found.seen = len(table.touched)
            if len(slots) <= _FEW:
                for slot in slots:
                    self._refresh_one(ask, found, slot)
            else:
                self._refresh(ask, found, np.array(slots, dtype=np.intp))
        return found

    def data(self, part: HeldZones, ids: tuple[int, ...]) -> Mapping[str, Any]:
        """Return the data for the binder of a pod that takes `part`.

        `ids`: the NUMA nodes of the zones. Pods with the same part share the data.
        """
        key = part, ids
        found = self._data.get(key)
        if found is None:
            if len(self._data) >= _MOST_OUTCOMES:
                self._data.clear()
            found = self._data[key] = _placement(part, ids, self._table.axis.resources).as_data()
        return found

    def hopeless(self, ask: Ask) -> Bools:
        """Return the slots of nodes that would refuse the pod even without any other pods."""
        self._start_again()
        if self._version != self._table.version:
            self._hopeless.clear()
            self._version = self._table.version
        found = self._hopeless.get(ask)
        if found is None:
            admits = vectors.predict(self.empty_nodes(), ask.request).admit
            found = self._hopeless[ask] = ~admits
        return found

    def empty_nodes(self) -> ZoneArrays:
        """Return the zones of all nodes without any pods."""
        arrays = self._table.now.arrays
        return replace(
            arrays,
            free=arrays.totals,
            split=np.zeros_like(arrays.split),
            groups=np.zeros_like(arrays.groups),
        )

    # -- inside ------------------------------------------------------------------------------------

    def _start_again(self) -> None:
        if self._epoch != self._table.epoch:
            self._vectors.clear()
            self._outcomes.clear()
            self._data.clear()
            self._hopeless.clear()
            self._epoch = self._table.epoch

    def _new(self, ask: Ask) -> AskVectors:
        table = self._table
        if len(self._vectors) >= _MOST_VECTORS:
            del self._vectors[next(iter(self._vectors))]
        found = self._vectors[ask] = AskVectors(len(table.apart))
        found.seen = len(table.touched)
        self._refresh(ask, found, np.arange(len(table.apart)))
        return found

    def _refresh_one(self, ask: Ask, found: AskVectors, slot: int) -> None:
        now = self.outcome(ask, slot, later=False)
        found.write(slot, (now.admit, now.score))
        if self._table.apart[slot]:
            later = self.outcome(ask, slot, later=True)
            found.write_later(slot, (later.admit, later.score))

    def _refresh(self, ask: Ask, found: AskVectors, slots: Slots) -> None:
        table = self._table
        apart = slots[table.apart[slots] > 0]
        same = slots[table.apart[slots] == 0]
        if len(same):
            found.write(same, self._many(ask, table.now.arrays, same))
        if len(apart):
            found.write(apart, self._many(ask, self._unpromised(), apart))
            found.write_later(apart, self._many(ask, table.later.arrays, apart))

    def _unpromised(self) -> ZoneArrays:
        """Return what is free now without what is promised."""
        now, later = self._table.now.arrays, self._table.later.arrays
        return replace(
            now,
            free=np.minimum(now.free, later.free),
            split=np.minimum(now.split, later.split),
            groups=now.groups | later.groups,
        )

    @staticmethod
    def _many(ask: Ask, arrays: ZoneArrays, slots: Slots) -> tuple[Bools, Floats]:
        predicted = vectors.predict(arrays, ask.request, slots)
        scores = _scores(arrays, slots, predicted.zones, predicted.preferred)
        return predicted.admit, np.where(predicted.admit, scores, 0.0)

    def _predicted(self, ask: Ask, slot: int, later: bool, promised: bool) -> NodePrediction:
        table = self._table
        arrays = (table.later if later else table.now).arrays
        node = arrays.node(slot)
        if promised:
            node = _unpromised(node, table.later.arrays.node(slot))
        predicted = plain.predict(node, ask.request)
        zones = np.array([predicted.zones], dtype=np.uint8)
        preferred = np.array([predicted.preferred])
        score = float(_scores(arrays, np.array([slot]), zones, preferred)[0])
        part = table.axis.taken(node, predicted.after)
        return NodePrediction(predicted.admit, predicted.reason, score * predicted.admit, part)


def _placement(part: HeldZones, ids: Sequence[int], resources: Sequence[str]) -> NumaPlacement:
    held: dict[str, dict[str, int]] = {}
    zones = nodes_of(part.zones)
    for zone in zones:
        amounts = zip(resources, part.amounts[zone].tolist(), strict=True)
        held[str(ids[zone])] = {name: int(amount) for name, amount in amounts if amount > 0}
    with_memory = [name for name, amounts in held.items() if any(map(is_memory, amounts))]
    together = [[ids[zone] for zone in nodes_of(mask)] for mask in part.spans]
    return NumaPlacement(
        zones=[ids[zone] for zone in zones],
        held=held,
        together=together if len(with_memory) > 1 else None,
    )


def _unpromised(now: NodeZones, later: NodeZones) -> NodeZones:
    """Return what is free now and after all releases."""
    return replace(
        now,
        free=tuple(
            {name: min(amount, two[name]) for name, amount in one.items()}
            for one, two in zip(now.free, later.free, strict=True)
        ),
        split=tuple(map(min, now.split, later.split)),
        groups=tuple(one | two for one, two in zip(now.groups, later.groups, strict=True)),
    )


def _scores(arrays: ZoneArrays, slots: Slots, zones: NDArray[np.uint8], preferred: Bools) -> Floats:
    """Return the score of the `zones` (masks) that the nodes at `slots` would give, 0 to 100."""
    used = np.bitwise_count(zones).astype(np.float64)
    scores = np.where(preferred, ALIGNED, _UNALIGNED) / np.maximum(used, 1)
    several = np.flatnonzero(used > 1)
    if len(several):
        size = arrays.distances.shape[1]
        bits = (zones[several, None] >> _ZONE_BITS[:size] & 1).astype(np.float64)
        total = np.einsum("ni,nij,nj->n", bits, arrays.distances[slots[several]], bits)
        mean = total / used[several] ** 2
        far = np.clip((mean - _LOCAL) / (_FARTHEST - _LOCAL), 0, 1)
        scores[several] -= _FAR * far
    counts = (used > 0) & (arrays.policy[slots] != _NONE)
    return np.where(counts, scores, 0.0)
