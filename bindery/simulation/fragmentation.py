"""Fragmentation during a simulation: the free GPUs that the jobs of the trace could not use.

The measure is that of FGD (Weng et al., USENIX ATC 2023); the typical workload is the whole trace,
with each kind of pod as often as it arrives. See `bindery.scheduler.plugins.fragmentation`.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np

from bindery.api.gpushare import WHOLE
from bindery.kube.objects.watched import Pod
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.resources import Request, ResourceAxis
from bindery.scheduler.model.shapes import Shape, ShapeBook
from bindery.scheduler.plugins.fragmentation.gradient import (
    MOST_WEIGHT,
    NodeColumns,
    TypicalWorkload,
    fragmentation,
)

_MOST_COVERED: Final = 0.95
"""The most frequent kinds are taken until they are this share of the pods, as in FGD."""


class FragmentationMeter:
    """Measures an engine's cluster. `pods`: all pods of the trace."""

    def __init__(self, engine: Engine, pods: Iterable[Pod]) -> None:
        self._engine = engine
        state = engine.cluster.state
        book = ShapeBook(state.axis)
        counts = Counter(book.of(pod) for pod in pods)
        self._kinds = _covering(counts)
        self._workload = _workload(self._kinds, counts, state.axis)

    def lost_gpus(self) -> float:
        """Return the free GPUs that the typical pod cannot use, on average over all pods."""
        if not self._kinds:
            return 0.0
        state = self._engine.cluster.state
        with self._engine.session() as session:
            rows = session.order
            allowed = np.array([session.passing(kind)[rows] for kind in self._kinds])
        columns = NodeColumns(
            free=np.maximum(state.nodes.devices.free(rows), 0),
            cpu=np.asarray(state.nodes.idle[state.axis.index("cpu"), rows]),
            allowed=allowed,
        )
        lost = fragmentation(self._workload, columns, limits_by_cpu=False).sum()
        return float(lost) / WHOLE / self._workload.total_weight


def _covering(counts: Counter[Shape]) -> list[Shape]:
    """Return the most frequent kinds that together are most of the pods."""
    found, covered = [], 0
    for shape, count in counts.most_common():
        if covered >= _MOST_COVERED * counts.total():
            break
        found.append(shape)
        covered += count
    return found


def _workload(kinds: list[Shape], counts: Counter[Shape], axis: ResourceAxis) -> TypicalWorkload:
    cpu = axis.index("cpu")
    scale = max(1, -(-sum(counts[kind] for kind in kinds) // MOST_WEIGHT))
    shares = [kind.request.share for kind in kinds]
    return TypicalWorkload(
        weight=np.array([max(1, counts[kind] // scale) for kind in kinds], dtype=np.int64),
        cpu=np.array([_amount(kind.request, cpu) for kind in kinds], dtype=np.int64),
        portion=np.array([share.portion if share else 0 for share in shares], dtype=np.int64),
        devices=np.array([share.devices if share else 0 for share in shares], dtype=np.int64),
    )


def _amount(request: Request, index: int) -> int:
    return dict(zip(request.indices, request.amounts, strict=True)).get(index, 0)
