"""How much of the free GPUs the typical workload cannot use, and how a placement changes that.

The measure extends that of FGD (Weng et al., "Beware of Fragmentation", USENIX ATC 2023). For a
node with the free parts R of its GPUs, and a kind of pod m:

    F(m) = sum of R              if m requests no GPU, or does not fit on the node
    F(m) = sum of R - usable(m)  otherwise
    usable(m) = min(sum of the R that are at least the part that m requests of a GPU,
                    CPU_SLACK * number of pods m with enough CPU * number of GPUs of one pod)
    F    = sum over m of weight(m) * F(m)

FGD has no second limit: there, GPUs count as usable as long as one pod has enough CPU.

All amounts and weights are integers, so F does not depend on the order of summation. A device of a
node that does not exist has the free part 0. Pure: arrays in, arrays out, nothing is kept.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bindery.api.gpushare import WHOLE
from bindery.scheduler.model.columns import BoolColumn, IntColumns

IntColumn = NDArray[np.int64]

MOST_WEIGHT: Final = 2**20
"""The largest sum of weights of a workload. With 64 devices of 10**9 units, F fits in int64."""
NO_PLACE: Final = int(np.iinfo(np.int64).max)
"""The growth at a place where the pod does not fit."""
NO_DEVICE: Final = -1
CPU_SLACK: Final = 2
"""With 1, kinds with much CPU count for too much; without a limit, GPUs are left without CPU."""
_MOST_PODS: Final = 4096
"""More pods than fit on the GPUs of a node; keeps products within int64."""


@dataclass(frozen=True, eq=False)
class TypicalWorkload:
    """The typical pods by kind: int64 columns [kind]."""

    weight: IntColumn
    """How often the kind occurs; positive, the sum is at most `MOST_WEIGHT`."""
    cpu: IntColumn
    """Milli cores of one pod."""
    portion: IntColumn
    """The part of each of its devices, in units of a device; 0 for a pod without GPUs."""
    devices: IntColumn
    """Number of devices of one pod; 0 for a pod without GPUs."""

    whole: int = WHOLE
    """The units of one device."""

    @cached_property
    def total_weight(self) -> int:
        """The sum of weights."""
        return int(self.weight.sum())

    @cached_property
    def requested(self) -> NDArray[np.intp]:
        """The positions of the kinds that request GPUs."""
        return np.flatnonzero(self.portion > 0)

    @cached_property
    def size(self) -> IntColumn:
        """The GPUs that one pod uses, in units, of each kind that requests GPUs.

        A GPU counts whole for a pod that requests a part: pods of other kinds use the rest.
        """
        return self.devices[self.requested] * self.whole

    @cached_property
    def portions(self) -> IntColumn:
        """The different portions that kinds request, ascending [level]."""
        return np.unique(self.portion[self.requested])

    @cached_property
    def level(self) -> NDArray[np.intp]:
        """The position of its portion in `portions`, of each kind that requests GPUs."""
        return np.searchsorted(self.portions, self.portion[self.requested])


@dataclass(frozen=True, eq=False)
class NodeColumns:
    """The state of nodes, as far as fragmentation depends on it."""

    free: IntColumns
    """The free part of each device, in units of a device [device, node]; int64, 0 or more."""
    cpu: IntColumn
    """Free milli cores [node]; int64, may be negative."""
    allowed: NDArray[np.bool_]
    """Whether pods of a kind may use the node, apart from room [kind, node]."""

    def take(self, columns: NDArray[np.intp] | BoolColumn) -> "NodeColumns":
        """Return the nodes at `columns` (indexes or a mask) as new arrays."""
        return NodeColumns(self.free[:, columns], self.cpu[columns], self.allowed[:, columns])

    @property
    def count(self) -> int:
        """The number of nodes."""
        return len(self.cpu)


@dataclass(frozen=True, eq=False)
class Ask:
    """The pod to be placed."""

    cpu: int
    """Milli cores."""
    portion: int | IntColumn
    """The part of each device, above 0; an array [node] if it differs between nodes."""
    devices: int = 1


@dataclass(frozen=True, eq=False)
class PossiblePlaces:
    """The possible places of a pod, one column each, and the nodes as they would be then."""

    node: NDArray[np.intp]
    """The node of each place, ascending [place]."""
    device: NDArray[np.intp]
    """The first device of each place [place]."""
    after: NodeColumns
    """The node of each place after the pod was placed there [.., place]."""


def fragmentation(
    workload: TypicalWorkload, nodes: NodeColumns, *, limits_by_cpu: bool = True
) -> IntColumn:
    """Return F of each of `nodes` [node], in units of a device times weight.

    `limits_by_cpu`: False for the measure of FGD, without the limit by free CPU.
    """
    free, kinds, level = nodes.free, workload.requested, workload.level
    fits = free >= workload.portions[:, None, None]  # [level, device, node]
    usable = (fits * free).sum(axis=1)
    # The kinds that fit on each node [kind with GPUs, node].
    can_run = fits.sum(axis=1)[level] >= workload.devices[kinds, None]
    can_run &= nodes.cpu >= workload.cpu[kinds, None]
    can_run &= nodes.allowed[kinds]
    usable = usable[level]
    if limits_by_cpu:  # with enough CPU for so many pods of a kind, so many devices
        cpu = workload.cpu[kinds, None]
        pods = np.where(cpu > 0, np.maximum(nodes.cpu, 0) // np.maximum(cpu, 1), _MOST_PODS)
        served = np.minimum(pods, _MOST_PODS) * (CPU_SLACK * workload.size[:, None])
        usable = np.minimum(usable, served)
    used = workload.weight[kinds] @ (can_run * usable)
    return np.asarray(free.sum(axis=0) * workload.total_weight - used)


def places(nodes: NodeColumns, ask: Ask) -> PossiblePlaces:
    """Return the possible places of `ask`: only rooms for CPU and devices are checked.

    For a part of one device, each device with room is a place; of equal devices, the first one.
    Otherwise, each node is one place, with the devices on which the pod leaves least.
    """
    free, cpu = nodes.free, nodes.cpu
    fits = (free >= ask.portion) & (cpu >= ask.cpu)
    if ask.devices == 1:
        for at in range(1, len(free)):  # equal devices of a node are equal places
            fits[at] &= ~((free[:at] == free[at]) & fits[:at]).any(axis=0)
        node, device = np.nonzero(fits.T)
        taken = np.zeros((len(free), len(node)), dtype=np.bool_)
        taken[device, np.arange(len(node))] = True
    else:
        node = np.flatnonzero(fits.sum(axis=0) >= ask.devices)
        room = np.where(fits[:, node], free[:, node], NO_PLACE)
        order = room.argsort(axis=0, kind="stable")[: ask.devices]
        device = order[0] if len(node) else np.zeros(0, dtype=np.intp)
        taken = np.zeros(room.shape, dtype=np.bool_)
        np.put_along_axis(taken, order, values=True, axis=0)
    portion = ask.portion if isinstance(ask.portion, int) else ask.portion[node]
    after = nodes.take(node)
    left = NodeColumns(after.free - taken * portion, after.cpu - ask.cpu, after.allowed)
    return PossiblePlaces(node, device, left)


def growth(
    workload: TypicalWorkload, nodes: NodeColumns, ask: Ask, before: IntColumn | None = None
) -> tuple[IntColumn, NDArray[np.intp]]:
    """Return the smallest growth of F by placing `ask` on each of `nodes`, and its device [node].

    `before`: F of the nodes, if it is known. Of devices with the same growth, the fullest one is
    returned, then the first one. Without room: `NO_PLACE` and `NO_DEVICE`.
    """
    if before is None:
        before = fragmentation(workload, nodes)
    found = places(nodes, ask)
    grown = np.full(nodes.count, NO_PLACE, dtype=np.int64)
    chosen = np.full(nodes.count, NO_DEVICE, dtype=np.intp)
    if not len(found.node):
        return grown, chosen
    change = fragmentation(workload, found.after) - before[found.node]
    room = nodes.free[found.device, found.node]
    # Sorted by node, then from worst to best: the last assignment to a node is its best place.
    best_last = np.lexsort((-found.device, -room, -change, found.node))
    grown[found.node[best_last]] = change[best_last]
    chosen[found.node[best_last]] = found.device[best_last]
    return grown, chosen


def device_growths(workload: TypicalWorkload, nodes: NodeColumns, ask: Ask) -> IntColumn:
    """Return the growth of F on each device of a single node [device]; `ask` is for one device.

    Equal devices have the same growth. Without room: `NO_PLACE`.
    """
    found = places(nodes, ask)
    change = fragmentation(workload, found.after) - fragmentation(workload, nodes)
    grown = np.full(len(nodes.free), NO_PLACE, dtype=np.int64)
    for device, value in zip(found.device, change, strict=True):
        grown[nodes.free[:, 0] == nodes.free[device, 0]] = value
    return grown


def buckets(grown: IntColumn, unit: int) -> IntColumn:
    """Return a score of 0 to 100 for each growth; `unit` is the growth that counts as one GPU.

    The score is the integer part of 100 / (1 + e**(growth / unit)), as in FGD's experiment. Near 0,
    a step is about 40 milli GPUs. Finer steps pack worse: places that are nearly as good must be
    equal, so that the order of nodes decides between them. `NO_PLACE` scores 0.
    """
    scaled = np.clip(grown / unit, -700.0, 700.0)
    return np.floor(100.0 / (1.0 + np.exp(scaled))).astype(np.int64)
