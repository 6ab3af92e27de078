"""nodeplacement: binpack or spread, for GPU pods, for CPU-only pods and for the devices of a node.

Scores keep to KAI-Scheduler's decades (its `nodeplacement` 0 to 9, `resourcetype` 10).
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bindery.api.base import ApiModel
from bindery.api.gpushare import WHOLE
from bindery.api.names import GPU_RESOURCE
from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.devices import in_order
from bindery.scheduler.model.jobs import Task
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.plugins.view import SessionView

_DECADE = 9.0
_CPU_ONLY_NODE = 10.0

Strategy = Literal["binpack", "spread"]


class Arguments(ApiModel):
    """How each kind of pod is placed."""

    gpu: Strategy = "binpack"
    cpu: Strategy = "binpack"
    device: Strategy = "binpack"
    """Which GPUs of its node a pod gets: binpack fills up those that are shared already."""


class NodePlacement:
    """Scores nodes by the resource that decides: GPUs for pods that ask for some, else CPU."""

    name = "nodeplacement"
    arguments = Arguments

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments

    def gpu_strategy(self) -> Strategy:
        """Return how pods that ask for GPUs are placed."""
        return self._arguments.gpu

    def choose_devices(self, session: SessionView, task: Task, row: int) -> Sequence[str] | None:
        """Return the node's devices, by strategy the fullest or the emptiest first."""
        if task.shape.request.share is None:
            return None
        table = session.state.nodes.devices
        spread = self._arguments.device == "spread"
        return [str(d) for d in in_order(table, row, range(table.count(row)), spread=spread)]

    def worth_waiting(
        self, session: SessionView, shape: Shape, row: int, rows: Rows
    ) -> BoolColumn | None:
        """Return where a part of a GPU will fit onto a shared one: with binpack it waits for that
        rather than take a GPU that pods could have which ask for whole ones.
        """
        share, table = shape.request.share, session.state.nodes.devices
        if share is None or share.portion == WHOLE or self._arguments.device == "spread":
            return None
        if table.joins_now(share, np.array([row]))[0]:
            return None
        return table.joins_later(share, rows)

    def node_scores(self, session: SessionView, shape: Shape, rows: Rows) -> NDArray[np.float64]:
        """Return 0 to 9 by strategy, and 10 more for a CPU-only pod on a node without GPUs.

        Binpack 9 * (1 - free / largest allocatable): the least free first, as KAI's
        9 * (1 - (free - min) / (max - min)) orders them, but stale for one node only after a
        placement. Spread 9 * free / allocatable. Free is what is idle or will be.
        """
        axis, nodes = session.state.axis, session.state.nodes
        gpu = axis.index(GPU_RESOURCE)
        index = gpu if shape.wants_gpu else axis.index("cpu")
        strategy = self._arguments.gpu if shape.wants_gpu else self._arguments.cpu
        free = nodes.idle[index, rows]
        if session.is_releasing:
            free = free + nodes.releasing[index, rows] - nodes.pipelined[index, rows]
        free = np.maximum(free, 0)
        if strategy == "binpack":
            scores = _DECADE * (1.0 - free / session.largest_allocatable[index])
        else:
            scores = _DECADE * free / np.maximum(nodes.allocatable[index, rows], 1)
        if not shape.wants_gpu:
            scores = scores + _CPU_ONLY_NODE * (nodes.allocatable[gpu, rows] == 0)
        return np.asarray(scores, dtype=np.float64)
