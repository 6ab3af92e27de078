"""fragmentation: places pods where the typical workload loses the fewest GPUs.

The measure is that of FGD (`gradient`), for the kinds of pods that the scheduler has seen
(`workload`) or that its arguments give. Of places that are about as good, the node with the first
name is taken. Pods without GPUs go to nodes without GPUs, else to the node with the fewest free
GPUs. The plugin scores nothing for a kind of pods whose strategy nodeplacement has in its
arguments, nor before it has seen enough pods.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from bindery.api import quantity
from bindery.api.base import ApiModel
from bindery.api.gpushare import WHOLE
from bindery.api.names import GPU_RESOURCE
from bindery.kube.objects.podspec import NodeSelector, Toleration
from bindery.scheduler.model.jobs import Task
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.verdicts import Rows
from bindery.scheduler.plugins.fragmentation.gradient import (
    Ask,
    NodeColumns,
    device_growths,
)
from bindery.scheduler.plugins.fragmentation.table import GrowthTable
from bindery.scheduler.plugins.fragmentation.workload import (
    HALF_LIFE_DAYS,
    MINIMUM_PODS,
    NO_GPU,
    Kinds,
    PodKind,
    TypicalPods,
    given,
    learn,
)
from bindery.scheduler.plugins.view import FRAGMENTATION, SessionView, without_gpus

_DECADE = 9.0
_CPU_ONLY_NODE = 10.0


class GivenKind(ApiModel):
    """One kind of pods of a given workload."""

    weight: int = Field(default=1, ge=1, le=2**31)
    """How many of the workload's pods are of this kind."""
    cpu: str = "0"
    gpus: float = Field(default=0.0, ge=0, le=64)
    """Whole GPUs, or a part of a GPU."""
    devices: int = Field(default=1, ge=1, le=64)
    """Of how many GPUs a part is requested."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    required_affinity: dict[str, Any] | None = None
    """`requiredDuringSchedulingIgnoredDuringExecution` of a node affinity."""
    tolerations: tuple[dict[str, str], ...] = ()

    @field_validator("gpus")
    @classmethod
    def _whole_or_a_part(cls, gpus: float) -> float:
        if gpus > 1 and gpus != int(gpus):
            raise ValueError("more than one GPU must be whole GPUs")
        return gpus

    @field_validator("cpu")
    @classmethod
    def _is_a_quantity(cls, cpu: str) -> str:
        try:
            quantity.parse(cpu, "cpu")
        except quantity.QuantityError as error:
            raise ValueError(str(error)) from error
        return cpu


class FragmentationArguments(ApiModel):
    """The arguments of fragmentation."""

    minimum_pods: int = Field(default=MINIMUM_PODS, ge=0)
    """How many pods with GPUs must exist before the plugin scores anything."""
    half_life_days: int = Field(default=HALF_LIFE_DAYS, ge=1)
    """A pod that was created so many days before the newest pod counts half in the workload."""
    workload: tuple[GivenKind, ...] = ()
    """The typical workload. Empty: it is learned from the pods that exist."""


class Fragmentation:
    """Scores places by the growth of fragmentation, and chooses GPUs on their nodes."""

    name = FRAGMENTATION
    arguments = FragmentationArguments

    def __init__(self, arguments: FragmentationArguments) -> None:
        self._arguments = arguments
        self._kinds = Kinds()
        self._given = given(self._read(kind) for kind in arguments.workload)
        self._typical = TypicalPods(())
        self._learned_at: tuple[object, ...] = ()
        self._table: GrowthTable | None = None
        self._allowed: NDArray[np.bool_] = np.zeros((0, 0), dtype=np.bool_)
        self._built_at: tuple[object, ...] = ()

    def packing_strategies(self) -> None:
        """Return None: `nodeplacement` has the strategies."""

    def packs(self, session: SessionView, shape: Shape) -> bool:
        """Return whether this plugin decides how pods of `shape` are packed."""
        if shape.request.part is not None or not self._is_active(session):
            return False
        strategies = session.packing.strategies
        if shape.request.share is not None:
            return strategies.gpu == FRAGMENTATION
        return strategies.cpu == FRAGMENTATION and not shape.wants_gpu

    def node_scores(
        self, session: SessionView, shape: Shape, rows: Rows
    ) -> NDArray[np.float64] | None:
        """Return 0 to 9 for pods with GPUs, 0 to 19 for others; None if it packs no such pods."""
        if not self.packs(session, shape):
            return None
        if shape.request.share is None:
            return _fullest(session, rows)
        table = self._table_for(session)
        table.update(rows, self._columns(session, rows))
        bucket = table.buckets(self._ask(session, shape, rows), rows)
        return np.asarray(bucket * (_DECADE / 100.0), dtype=np.float64)

    def worth_waiting(self, session: SessionView, shape: Shape, row: int, rows: Rows) -> None:
        """Return None: a pod takes the best node that has room now."""

    def choose_devices(self, session: SessionView, task: Task, row: int) -> Sequence[str] | None:
        """Return the GPUs of the node, the least growth of fragmentation first."""
        share = task.shape.request.share
        if share is None or session.packing.strategies.device != FRAGMENTATION:
            return None
        if not self.packs(session, task.shape):
            return None
        table, rows = self._table_for(session), np.array([row])
        node = self._columns(session, rows)
        if share.devices == 1:
            grown = device_growths(table.workload, node, self._ask(session, task.shape, rows))
        else:  # the gradient compares nodes only: the fullest GPUs of the node
            grown = np.zeros(len(node.free), dtype=np.int64)
        free = node.free[:, 0]
        return [str(device) for device in np.lexsort((np.arange(len(free)), free, grown))]

    # -- the workload --------------------------------------------------------------------------

    def typical_pods(self, session: SessionView) -> TypicalPods:
        """Return the typical pods of this session; none before enough pods are known."""
        if self._given.weights:
            return self._given
        counts, axis = session.state.pod_counts, session.state.axis
        key = (counts, counts.version)
        if key != self._learned_at:
            self._learned_at = key
            arguments = self._arguments
            learned = learn(
                counts.by_day, axis, self._kinds, arguments.half_life_days, arguments.minimum_pods
            )
            if learned != self._typical:  # the same workload keeps its table
                self._typical = learned
        return self._typical

    def _is_active(self, session: SessionView) -> bool:
        return bool(self.typical_pods(session).weights)

    def _read(self, kind: GivenKind) -> tuple[PodKind, int]:
        if not kind.gpus:
            return NO_GPU, kind.weight
        key, nodes = self._kinds.put(
            kind.node_selector,
            msgspec.convert(kind.required_affinity, NodeSelector | None),
            [msgspec.convert(each, Toleration) for each in kind.tolerations],
        )
        cpu, portion = quantity.parse(kind.cpu, "cpu"), WHOLE
        devices = int(kind.gpus)
        if kind.gpus < 1:
            portion, devices = max(1, round(kind.gpus * WHOLE)), kind.devices
        return PodKind(cpu, portion, devices, key, nodes), kind.weight

    # -- the table -----------------------------------------------------------------------------

    def _table_for(self, session: SessionView) -> GrowthTable:
        """Return the growths for the typical pods and the nodes of this session."""
        nodes, pods = session.state.nodes, self.typical_pods(session)
        key = (pods, nodes, nodes.version)
        if self._table is not None and self._built_at == key:
            return self._table
        rows = np.arange(len(nodes.nodes))
        self._allowed = self._allowed_by(session, pods)
        columns = self._columns(session, rows)
        old = self._table
        if old is not None and self._built_at[:2] == key[:2] and old.is_for(columns):
            old.update(rows, columns)
        else:
            self._table = GrowthTable(pods.workload(), columns)
        self._built_at = key
        assert self._table is not None, "built above"
        return self._table

    def _allowed_by(self, session: SessionView, pods: TypicalPods) -> NDArray[np.bool_]:
        """Return whether pods of each kind may use each node [kind, node row]."""
        passing = {
            key: session.passing(self._kinds.constraint(key))
            for key in dict.fromkeys(pods.constraints)
        }
        return np.array([passing[key] for key in pods.constraints], dtype=np.bool_)

    def _columns(self, session: SessionView, rows: Rows) -> NodeColumns:
        """Return the state of the nodes at `rows`, after all releases."""
        return NodeColumns(
            session.state.nodes.devices.free(rows),
            _later(session, session.state.axis.index("cpu"), rows),
            self._allowed[:, rows],
        )

    def _ask(self, session: SessionView, shape: Shape, rows: Rows) -> Ask:
        share, request = shape.request.share, shape.request
        assert share is not None, "only for pods that request GPUs"
        cpu = session.state.axis.index("cpu")
        amounts = dict(zip(request.indices, request.amounts, strict=True))
        if share.memory_mib:
            portions = session.state.nodes.devices.portions(share, rows)
            return Ask(amounts.get(cpu, 0), portions, share.devices)
        return Ask(amounts.get(cpu, 0), share.portion, share.devices)


def _later(session: SessionView, index: int, rows: Rows) -> NDArray[np.int64]:
    """Return the free amount of a resource on each of `rows`, after all releases."""
    nodes = session.state.nodes
    free = nodes.idle[index, rows]
    if session.is_releasing:
        free = free + nodes.releasing[index, rows] - nodes.pipelined[index, rows]
    return np.asarray(free)


def _fullest(session: SessionView, rows: Rows) -> NDArray[np.float64]:
    """Return 0 to 9 for the fewest free GPUs; for a node without GPUs 10, and 9 for a full CPU."""
    axis = session.state.axis
    gpu, cpu = axis.index(GPU_RESOURCE), axis.index("cpu")
    largest = session.largest_allocatable
    without = without_gpus(session, rows)
    free_gpu = np.maximum(_later(session, gpu, rows), 0) / largest[gpu]
    free_cpu = np.maximum(_later(session, cpu, rows), 0) / largest[cpu]
    return np.asarray(
        np.where(without, _CPU_ONLY_NODE + _DECADE * (1.0 - free_cpu), _DECADE * (1.0 - free_gpu))
    )
