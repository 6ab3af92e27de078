"""The prediction for many nodes at once, in arrays.

There is no loop over nodes. Nodes with as many zones are asked together, so that a node with two
zones costs three masks and not 255.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bindery.nodecore.prediction.arrays import POLICIES, SCOPES, ZoneArrays
from bindery.nodecore.prediction.columnallocation import allocate
from bindery.nodecore.prediction.columnmerge import Decisions, decide
from bindery.nodecore.prediction.columns import Bools, Columns, Masks
from bindery.nodecore.prediction.requests import PodRequest
from bindery.nodecore.topology.manager import POD_SCOPE
from bindery.nodecore.topology.policies import NONE

_NONE = POLICIES.index(NONE)
_POD_SCOPE = SCOPES.index(POD_SCOPE)


@dataclass(frozen=True)
class Predictions:
    """What each of K nodes will decide about a pod; `plain.Prediction` explains the attributes.

    Attributes:
        admit: bool [K].
        zones: uint8 [K]; masks of zones.
        preferred: bool [K].
    """

    admit: Bools
    zones: Masks
    preferred: Bools

    @property
    def used(self) -> NDArray[np.uint8]:
        """The number of zones in `zones`; uint8 [K]."""
        return np.bitwise_count(self.zones)


def predict(
    arrays: ZoneArrays, request: PodRequest, nodes: NDArray[np.intp] | None = None
) -> Predictions:
    """Return what each node will decide about a pod that asks for `request`.

    `nodes`: the rows to ask, K of them; None for all.
    """
    rows = np.arange(len(arrays.zone_count)) if nodes is None else nodes
    counts = arrays.zone_count[rows]
    admit = np.ones(len(rows), np.bool_)
    zones = np.zeros(len(rows), np.uint8)
    preferred = (counts > 0) & (arrays.policy[rows] != _NONE)
    if not request.is_empty:
        for count in np.unique(counts[counts > 0]):
            places = np.flatnonzero(counts == count)
            found = _predict_alike(arrays, request, rows[places], int(count))
            admit[places], zones[places] = found.admit, found.zones
            preferred[places] = found.preferred
    return Predictions(admit, zones, preferred)


def _predict_alike(
    arrays: ZoneArrays, request: PodRequest, nodes: NDArray[np.intp], count: int
) -> Predictions:
    """Return the predictions for nodes with `count` zones each."""
    columns = Columns(arrays, nodes, count, request.resources)
    alive = np.ones(len(nodes), np.bool_)
    preferred = np.ones(len(nodes), np.bool_)
    zones = np.zeros(len(nodes), np.uint8)
    is_whole = arrays.scope[nodes] == _POD_SCOPE
    whole = decide(columns, request.whole) if is_whole.any() else None
    for place, wanted in enumerate(request.containers, start=1):
        if whole is None:
            decided = decide(columns, wanted)
        elif is_whole.all():
            decided = whole
        else:
            decided = _combined(is_whole, whole, decide(columns, wanted))
        alive &= decided.admit
        preferred &= decided.preferred
        is_last = place == len(request.containers)
        zones |= allocate(columns, wanted, decided, alive, is_last=is_last)
    return Predictions(alive, np.where(alive, zones, np.uint8(0)), preferred & alive)


def _combined(is_whole: Bools, whole: Decisions, single: Decisions) -> Decisions:
    return Decisions(
        np.where(is_whole, whole.masks, single.masks),
        np.where(is_whole, whole.preferred, single.preferred),
        np.where(is_whole, whole.admit, single.admit),
    )
