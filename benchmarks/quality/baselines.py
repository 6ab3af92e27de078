"""Known policies on plain arrays, to compare with: random, best-fit, packing.

Not the scheduler: one task at a time, all nodes; CPU, memory, GPU model and devices. They follow
the descriptions in FGD's experiment. Best-fit equals the published figures seed by seed; packing
is a similar policy; random draws other numbers than the published runs did.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality.traces import Run
from bindery.simulation.openb import TaskRow

Fits = NDArray[np.intp]
"""Indexes of the nodes on which the task fits, by rank."""
Choose = Callable[["Nodes", TaskRow, Fits], int]
"""Returns the node for a task."""

_MOST_CPU: Final = 128_000
_MOST_GPU: Final = 8_000


class Nodes:
    """The free amounts of the nodes, by rank."""

    def __init__(self, run: Run) -> None:
        nodes = run.nodes
        self.cpu = np.array([node.cpu_milli for node in nodes])
        self.memory = np.array([node.memory_mib for node in nodes])
        counts = np.array([node.gpus for node in nodes])
        devices = np.arange(counts.max())[:, None]
        self.free: NDArray[np.int64] = np.where(devices < counts, 1000, 0)
        """Milli of each device [device, node]; 0 for a device that does not exist."""
        self.exists = devices < counts
        self._models = np.array([node.model for node in nodes])
        self._allowed: dict[tuple[str, ...], NDArray[np.bool_]] = {}

    def fits(self, task: TaskRow) -> Fits:
        """Return the nodes on which `task` fits."""
        fits = (self.cpu >= task.cpu_milli) & (self.memory >= task.memory_mib)
        if task.models:
            if task.models not in self._allowed:
                self._allowed[task.models] = np.isin(self._models, task.models)
            fits &= self._allowed[task.models]
        if task.gpus:
            fits &= (self.free >= task.gpu_milli).sum(axis=0) >= task.gpus
        return np.flatnonzero(fits)

    def place(self, task: TaskRow, node: int, device: int | None = None) -> None:
        """Take the room of `task`: on `device`, else on the fullest devices with room."""
        self.cpu[node] -= task.cpu_milli
        self.memory[node] -= task.memory_mib
        if not task.gpus:
            return
        if device is None:
            room = np.where(self.free[:, node] >= task.gpu_milli, self.free[:, node], _MOST_GPU)
            taken = room.argsort(kind="stable")[: task.gpus]
        else:
            taken = np.array([device])
        self.free[taken, node] -= task.gpu_milli


def play(run: Run, policy: str, seed: int) -> NDArray[np.bool_]:
    """Return which arrivals of `run` are placed by `policy`, one of `POLICIES`."""
    nodes = Nodes(run)
    draw = np.random.default_rng(seed)
    placed = np.zeros(len(run.arrivals), dtype=np.bool_)
    for number, task in enumerate(run.arrivals):
        fits = nodes.fits(task)
        if not len(fits):
            continue
        placed[number] = True
        device = None
        if policy == "random":
            node = int(draw.choice(fits))
            if task.gpus == 1:
                device = int(draw.choice(np.flatnonzero(nodes.free[:, node] >= task.gpu_milli)))
        else:
            node = _SCORED[policy](nodes, task, fits)
        nodes.place(task, node, device)
    return placed


def _best_fit(nodes: Nodes, task: TaskRow, fits: Fits) -> int:
    cpu = (nodes.cpu[fits] - task.cpu_milli) / _MOST_CPU
    gpu = (nodes.free[:, fits].sum(axis=0) - task.total_milli) / _MOST_GPU
    return _first_best(fits, 100.0 * (1.0 - (0.5 * cpu + 0.5 * gpu)))


def _packing(nodes: Nodes, task: TaskRow, fits: Fits) -> int:
    """Prefer used devices, then free devices of used nodes, then unused nodes."""
    free, exists = nodes.free[:, fits], nodes.exists[:, fits]
    unused = ((free == 1000) & exists).sum(axis=0)
    joins = ((free >= task.gpu_milli) & (free < 1000) & exists).any(axis=0)
    is_used = unused < exists.sum(axis=0)
    scores = np.where(is_used, 2.0, 1.0)
    if task.gpus and task.gpu_milli < 1000:
        scores = np.where(joins, 3.0, scores)
    return _first_best(fits, scores)


def _first_best(fits: Fits, scores: NDArray[np.float64]) -> int:
    """Return the node with the highest score, cut to an integer; of equal ones the first."""
    return int(fits[np.trunc(scores).argmax()])


_SCORED: Final[dict[str, Choose]] = {"best-fit": _best_fit, "packing": _packing}
POLICIES: Final[Sequence[str]] = ("random", *_SCORED)
