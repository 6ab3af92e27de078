"""`python -m benchmarks.quality.topology`: how close together gangs run, as a table.

Random gangs of 2 to 64 nodes arrive and end, on 512 nodes in racks of 16 and blocks of 64, for an
hour of virtual time. The engine is compared with first-fit and best-fit of domains.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Final

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.quality.domains import Placed, best_fit, first_fit, play_engine, play_policy
from benchmarks.quality.gangtraces import BLOCK, NODES, RACK, Gang, Sizes, make_gangs
from bindery.api.configuration import SchedulerConfiguration
from bindery.simulation.report import percentile

_OURS: Final = "bindery"
_SAMPLE_EVERY_S: Final = 30.0
_WIDTH: Final = 160


@dataclass(frozen=True)
class Quality:
    """How well one policy places gangs."""

    policy: str
    gangs: int
    """Gangs that have started."""
    in_one_rack: float
    """Share of the gangs that fit into a rack."""
    in_one_block: float
    """Share of all gangs."""
    levels_crossed: float
    """Mean: 0 for a gang in one rack, 1 for one in several racks of a block, else 2."""
    excess_levels: float
    """Mean of the levels that a gang crosses beyond the fewest that its size needs."""
    largest_free_block: float
    """Mean over time of the largest number of free nodes in one block."""
    free_racks: float
    """Mean over time of the number of racks that are free as a whole."""
    waiting_mean_s: float
    waiting_median_s: float
    waiting_p95_s: float
    allocated: float
    """Mean over time of the share of nodes with a gang."""


def measure(policy: str, gangs: Sequence[Gang], placed: Sequence[Placed], from_s: float) -> Quality:
    """Return the quality of `placed`, of the gangs and the time after `from_s`."""
    end_s = gangs[-1].arrival_s
    counted = [each for each in placed if each.gang.arrival_s >= from_s]
    crossed = [_levels(each.nodes) for each in counted]
    least = [(each.gang.nodes > RACK) + (each.gang.nodes > BLOCK) for each in counted]
    waits = [each.started_s - each.gang.arrival_s for each in counted]
    small = [levels == 0 for levels, few in zip(crossed, least, strict=True) if not few]
    free = [_free(placed, at_s) for at_s in np.arange(from_s, end_s, _SAMPLE_EVERY_S)]
    return Quality(
        policy=policy,
        gangs=len(counted),
        in_one_rack=mean(small),
        in_one_block=mean(levels <= 1 for levels in crossed),
        levels_crossed=mean(crossed),
        excess_levels=mean(a - b for a, b in zip(crossed, least, strict=True)),
        largest_free_block=mean(int(f.reshape(-1, BLOCK).sum(axis=1).max()) for f in free),
        free_racks=mean(int(f.reshape(-1, RACK).all(axis=1).sum()) for f in free),
        waiting_mean_s=mean(waits),
        waiting_median_s=median(waits),
        waiting_p95_s=percentile(waits, 0.95),
        allocated=1 - mean(float(f.mean()) for f in free),
    )


def _levels(nodes: Sequence[int]) -> int:
    if len({node // RACK for node in nodes}) == 1:
        return 0
    return 1 if len({node // BLOCK for node in nodes}) == 1 else 2


def _free(placed: Sequence[Placed], at_s: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    free = np.ones(NODES, dtype=np.bool_)
    for each in placed:
        if each.started_s <= at_s < each.started_s + each.gang.runtime_s:
            free[list(each.nodes)] = False
    return free


def average(parts: Sequence[Quality]) -> Quality:
    """Return the mean of the qualities of one policy over seeds."""
    wires = [asdict(part) for part in parts]
    values = {name: mean(wire[name] for wire in wires) for name in wires[0] if name != "policy"}
    return Quality(policy=parts[0].policy, **{**values, "gangs": round(values["gangs"])})


def main(
    seeds: Annotated[int, typer.Option(min=1, help="How many; 1, 2, ….")] = 3,
    load: Annotated[float, typer.Option(min=0.05, max=2.0, help="Requested share.")] = 0.9,
    hours: Annotated[float, typer.Option(min=0.1, help="Measured virtual time.")] = 1.0,
    output: Annotated[Path, typer.Option()] = Path("build/topology-quality.json"),
) -> None:
    """Measure how close together the engine places gangs, beside first-fit and best-fit.

    The gangs prefer a rack. For example, with less load:

    python -m benchmarks.quality.topology --load 0.7 --seeds 1
    """
    policies: dict[str, Callable[[Sequence[Gang]], list[Placed]]] = {
        _OURS: lambda gangs: play_engine(gangs, _configuration(), asks=True),
        "bindery, no topology asked": lambda g: play_engine(g, _configuration(), asks=False),
        "first-fit domains": lambda gangs: play_policy(gangs, first_fit),
        "best-fit domains": lambda gangs: play_policy(gangs, best_fit),
    }
    sizes = Sizes(span_s=hours * 3600, load=load)
    found: list[Quality] = []
    for name, play in policies.items():
        parts = []
        for seed in range(1, seeds + 1):
            gangs = make_gangs(seed, sizes)
            warm_up_s = gangs[-1].arrival_s - sizes.span_s
            parts.append(measure(name, gangs, play(gangs), warm_up_s))
        found.append(average(parts))
    Console(width=_WIDTH, highlight=False).print(_table(found))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps([asdict(each) for each in found], indent=2) + "\n")


def _configuration() -> SchedulerConfiguration:
    # As the other policies: nobody is moved or evicted, and no room is reserved.
    return SchedulerConfiguration(actions=("allocate",))


def _table(found: Sequence[Quality]) -> Table:
    table = Table(title=f"{NODES} nodes in racks of {RACK} and blocks of {BLOCK}")
    headings = (
        ("policy", "gangs", "in one rack", "in one block", "levels crossed", "beyond need"),
        ("largest free block", "free racks", "wait mean", "median", "p95", "allocated"),
    )
    for number, heading in enumerate((*headings[0], *headings[1])):
        table.add_column(heading, justify="right" if number else "left")
    for each in found:
        table.add_row(
            each.policy,
            str(each.gangs),
            f"{100 * each.in_one_rack:.1f} %",
            f"{100 * each.in_one_block:.1f} %",
            f"{each.levels_crossed:.3f}",
            f"{each.excess_levels:.3f}",
            f"{each.largest_free_block:.1f}",
            f"{each.free_racks:.1f}",
            f"{each.waiting_mean_s:.0f} s",
            f"{each.waiting_median_s:.0f} s",
            f"{each.waiting_p95_s:.0f} s",
            f"{100 * each.allocated:.1f} %",
        )
    return table


if __name__ == "__main__":
    typer.run(main)
