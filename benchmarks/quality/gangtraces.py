"""Random gangs on racks and blocks: arrivals and ends, for the table of topology quality.

Each node takes one pod. Sizes are drawn evenly over their logarithm, so that small gangs are as
frequent as large ones. Pure; a seed gives the same gangs each time.
"""

import math
import random
from dataclasses import dataclass
from typing import Final

NODES: Final = 512
RACK: Final = 16
BLOCK: Final = 64
SMALLEST, LARGEST = 2, 64


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang that requests whole nodes."""

    name: str
    nodes: int
    arrival_s: float
    runtime_s: float
    """From its start."""


@dataclass(frozen=True)
class Sizes:
    """How many gangs arrive, and how long they run."""

    span_s: float = 3600.0
    """Time in which gangs arrive."""
    mean_runtime_s: float = 300.0
    load: float = 0.9
    """Requested nodes, as a share of all, if every gang started when it arrives."""


def make_gangs(seed: int, sizes: Sizes = Sizes()) -> list[Gang]:
    """Return the gangs in the order of arrival."""
    draw = random.Random(seed)  # no secret
    mean_nodes = (LARGEST - SMALLEST) / math.log(LARGEST / SMALLEST)
    gap_s = mean_nodes * sizes.mean_runtime_s / (sizes.load * NODES)
    gangs: list[Gang] = []
    # Before the start, so that the cluster is full from the beginning.
    now_s = -2 * sizes.mean_runtime_s
    while True:
        now_s += draw.expovariate(1 / gap_s)
        if now_s > sizes.span_s:
            break
        nodes = round(math.exp(draw.uniform(math.log(SMALLEST), math.log(LARGEST))))
        runtime_s = draw.expovariate(1 / sizes.mean_runtime_s)
        gangs.append(Gang(f"gang-{len(gangs):04}", nodes, now_s, runtime_s))
    first_s = gangs[0].arrival_s
    return [Gang(g.name, g.nodes, g.arrival_s - first_s, g.runtime_s) for g in gangs]
