"""nodeplacement: binpack or spread, for GPU pods, for CPU-only pods and for the devices of a node.

With the strategy `fragmentation`, the plugin of that name decides, and this plugin packs the pods
that `fragmentation` does not score.

The scores have the ranges of KAI-Scheduler (`nodeplacement` 0 to 9, `resourcetype` 10).
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
from bindery.scheduler.plugins.view import PackingStrategies, SessionView, without_gpus

_DECADE = 9.0
_CPU_ONLY_NODE = 10.0

Strategy = Literal["fragmentation", "binpack", "spread"]


class NodePlacementArguments(ApiModel):
    """The strategy for each kind of pod."""

    gpu: Strategy = "fragmentation"
    cpu: Strategy = "fragmentation"
    device: Strategy = "fragmentation"
    """For the GPUs of a node: binpack fills shared GPUs first."""


class NodePlacement:
    """Scores nodes by free GPUs for pods with GPUs, else by free CPU."""

    name = "nodeplacement"
    arguments = NodePlacementArguments

    def __init__(self, arguments: NodePlacementArguments) -> None:
        self._arguments = arguments

    def packing_strategies(self) -> PackingStrategies:
        """Return the strategies of the arguments."""
        return PackingStrategies(self._arguments.gpu, self._arguments.cpu, self._arguments.device)

    def packs(self, session: SessionView, shape: Shape) -> bool:  # noqa: ARG002  # the protocol's
        """Return False: the scores of other plugins count besides."""
        return False

    def choose_devices(self, session: SessionView, task: Task, row: int) -> Sequence[str] | None:
        """Return the node's devices: fullest first with binpack, emptiest first with spread."""
        if task.shape.request.share is None:
            return None
        table = session.state.nodes.devices
        spread = self._arguments.device == "spread"
        return [str(d) for d in in_order(table, row, range(table.count(row)), spread=spread)]

    def worth_waiting(
        self, session: SessionView, shape: Shape, row: int, rows: Rows
    ) -> BoolColumn | None:
        """Return the nodes with room for a share on a shared GPU, after all releases.

        With binpack, the share waits for these nodes instead of opening an unshared GPU, which pods
        with whole GPUs could use.
        """
        share, table = shape.request.share, session.state.nodes.devices
        if share is None or share.portion == WHOLE or self._arguments.device == "spread":
            return None
        if table.joins_now(share, np.array([row]))[0]:
            return None  # the share opens no GPU on this node
        return table.joins_later(share, rows)

    def node_scores(
        self, session: SessionView, shape: Shape, rows: Rows
    ) -> NDArray[np.float64] | None:
        """Return 0 to 9 by strategy, and 10 more for a CPU-only pod on a node without GPUs.

        None for pods that another plugin packs.

        Binpack is 9 * (1 - free / largest allocatable). It gives the same order as KAI's
        9 * (1 - (free - min) / (max - min)), but a placement changes the score of one node only.
        Spread is 9 * free / allocatable. Free is idle plus releasing minus promised.
        """
        if session.packing.is_packed(shape):
            return None
        nodes = session.state.nodes
        index = _packed_by(session, shape)
        strategy = self._arguments.gpu if shape.wants_gpu else self._arguments.cpu
        free = nodes.idle[index, rows]
        if session.is_releasing:
            free = free + nodes.releasing[index, rows] - nodes.pipelined[index, rows]
        # Another scheduler can overcommit a node.
        free = np.maximum(free, 0)
        if strategy != "spread":
            scores = _DECADE * (1.0 - free / session.largest_allocatable[index])
        else:
            scores = _DECADE * free / np.maximum(nodes.allocatable[index, rows], 1)
        if not shape.wants_gpu:  # keeps CPU-only pods away from nodes with GPUs
            scores = scores + _CPU_ONLY_NODE * without_gpus(session, rows)
        return np.asarray(scores, dtype=np.float64)


def _packed_by(session: SessionView, shape: Shape) -> int:
    """Return the resource that decides where pods of `shape` are packed: GPUs, else CPU."""
    axis = session.state.axis
    if not shape.wants_gpu:
        return axis.index("cpu")
    others = {index for index, _ in axis.counted_as_gpus()}
    own = (index for index in shape.request.indices if index in others)
    return (
        next(own, axis.index(GPU_RESOURCE))
        if shape.request.share is None
        else axis.index(GPU_RESOURCE)
    )
