"""The traces of the FGD experiment on openb: tasks in the order of arrival, nodes by rank.

The folder with the data is given by the user: `nodes.csv`, `pods.csv`, `variants/*.csv` and
`published_alloc.csv`. The experiment: Weng et al., "Beware of Fragmentation", USENIX ATC 2023.
"""

import csv
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.quality.gorand import GoRandom
from bindery.simulation.openb import NODES, PODS, NodeRow, TaskRow, read_nodes, read_tasks

DEFAULT: Final = "default"
DEMAND: Final = 1.3
"""Arrivals end when they have requested this multiple of all GPUs."""
_DRAWS_BEFORE_RANKS: Final = 10


@dataclass(frozen=True)
class Run:
    """One run of the experiment."""

    nodes: tuple[NodeRow, ...]
    """The nodes with GPUs, by rank: of equal scores, the first node wins."""
    trace: tuple[TaskRow, ...]
    """All tasks of the trace, of which the typical workload is known to FGD."""
    arrivals: tuple[TaskRow, ...]
    """The tasks in the order of arrival; the same task may arrive several times."""

    @property
    def capacity_milli(self) -> int:
        """Milli GPUs of all nodes."""
        return 1000 * sum(node.gpus for node in self.nodes)


def names(data: Path) -> list[str]:
    """Return the names of the traces in the folder `data`, the default one first."""
    variants = sorted(path.stem for path in (data / "variants").glob("*.csv"))
    return [DEFAULT, *variants]


def make_run(data: Path, trace: str, seed: int, node_order: int | None = None) -> Run:
    """Return the run of `trace` with `seed`.

    `node_order`: a further seed that orders the nodes differently, with the same arrivals.
    """
    path = data / PODS if trace == DEFAULT else data / "variants" / f"{trace}.csv"
    tasks, nodes = _tasks(path), _nodes(data / NODES)
    draw = GoRandom(seed)
    draw.int63()
    arrivals = list(tasks)
    draw.shuffle(arrivals)
    _fill(arrivals, tasks, 1000 * sum(node.gpus for node in nodes), draw)
    for _ in range(_DRAWS_BEFORE_RANKS):
        draw.int63()
    ranks = (draw if node_order is None else GoRandom(node_order)).permutation(len(nodes))
    ordered = sorted(range(len(nodes)), key=ranks.__getitem__)
    return Run(tuple(nodes[index] for index in ordered), tuple(tasks), tuple(arrivals))


def published(data: Path) -> dict[str, dict[str, dict[str, dict[int, float]]]]:
    """Return the published allocation in %: trace -> policy -> column `100` or `130` -> seed."""
    found: defaultdict[str, dict[str, dict[str, dict[int, float]]]] = defaultdict(dict)
    with (data / "published_alloc.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            columns = found[row["trace"]].setdefault(row["policy"], {"100": {}, "130": {}})
            for column, values in columns.items():
                values[int(row["seed"])] = float(row[f"a{column}"])
    return dict(found)


def _fill(
    arrivals: list[TaskRow], tasks: list[TaskRow], capacity_milli: int, draw: GoRandom
) -> None:
    """Draw further arrivals, or remove some, until they request `DEMAND` times the GPUs."""
    most = DEMAND * capacity_milli
    total = sum(task.total_milli for task in arrivals)
    if total > most:
        while total > most:
            total -= arrivals.pop(draw.below(len(arrivals))).total_milli
        return
    while True:
        task = tasks[draw.below(len(tasks))]
        # The share of one GPU counts here, as in the published experiment.
        if total + task.gpu_milli > most:
            return
        arrivals.append(task)
        total += task.total_milli


@cache
def _tasks(path: Path) -> list[TaskRow]:
    return sorted(read_tasks(path), key=lambda task: task.name)


@cache
def _nodes(path: Path) -> list[NodeRow]:
    return [node for node in read_nodes(path) if node.gpus]
