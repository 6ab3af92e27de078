"""`python -m benchmarks.quality`: plays openb, prints tables, writes build/quality.json and a plot.

Every run is a trace, a policy, a seed and an order of the nodes; runs are independent and go to
several processes. Progress goes to standard error.
"""

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import Progress

from benchmarks.quality import baselines, engine, experiments, figures, plot
from benchmarks.quality.allocation import columns
from benchmarks.quality.figures import KNOWN, LEARNED, Result
from benchmarks.quality.traces import DEFAULT, make_run, names, published

_MEASURED_AT: Final = (50, 80, 100, 129)
_POLICIES: Final = (LEARNED, KNOWN, *baselines.POLICIES)
_ALL_POLICIES: Final = (*_POLICIES, *experiments.POLICIES)
_TABLE_WIDTH: Final = 200


@dataclass(frozen=True)
class Task:
    """One run."""

    data: Path
    trace: str
    policy: str
    seed: int
    node_order: int | None
    arrivals_by_cycle: int


def run(task: Task) -> Result:
    """Play one run."""
    found = make_run(task.data, task.trace, task.seed, task.node_order)
    started_s = time.process_time()
    lost: dict[int, float] = {}
    if task.policy in baselines.POLICIES:
        placed = baselines.play(found, task.policy, task.seed)
        planning_s = time.process_time() - started_s
    elif task.policy in experiments.POLICIES:
        placed = experiments.play(found, task.policy)
        planning_s = time.process_time() - started_s
    else:
        knows = found if task.policy == KNOWN else None
        configuration = engine.configuration(knows)
        played = engine.play(found, configuration, task.arrivals_by_cycle, _MEASURED_AT)
        placed, lost = played.placed, played.fragmentation
        planning_s = float(played.seconds_by_cycle.sum())
    by_column = columns(found, placed)
    gpus = found.capacity_milli / 1000
    return Result(
        trace=task.trace,
        policy=task.policy,
        seed=task.seed,
        node_order=task.node_order,
        allocation={column: round(value, 4) for column, value in by_column.items()},
        fragmentation={at: 100 * value / gpus for at, value in lost.items()},
        milliseconds=1000 * planning_s / len(found.arrivals),
    )


def main(  # noqa: PLR0913, PLR0917 -- every option of the command line is one
    data: Annotated[Path, typer.Option(metavar="DIR", help="The folder with openb.")],
    traces: Annotated[str, typer.Option(help="Names, or `all`.")] = "all",
    seeds: Annotated[str, typer.Option(help="Numbers, or a range such as 42-51.")] = "42-51",
    policies: Annotated[str, typer.Option(help=", ".join(_ALL_POLICIES))] = ",".join(_POLICIES),
    node_orders: Annotated[
        int, typer.Option(min=0, help="Further orders of the nodes: default trace, first seed.")
    ] = 10,
    arrivals_by_cycle: Annotated[
        int, typer.Option(min=1, help="How many pods a cycle of the engine takes up.")
    ] = 20,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    output: Annotated[Path, typer.Option(help="The means.")] = Path("build/quality.json"),
) -> None:
    """Measure how well GPUs are packed, beside known policies and the published figures.

    DIR has nodes.csv, pods.csv, variants/ and published_alloc.csv; docs/performance/placement.md
    has their sources. A quick look:

    python -m benchmarks.quality --data DIR --traces default --seeds 42 --node-orders 0
    """
    chosen = _chosen("--traces", traces, names(data))
    asked = _chosen("--policies", policies, _ALL_POLICIES)
    numbers = _numbers(seeds)
    tasks = [
        Task(data, trace, policy, seed, None, arrivals_by_cycle)
        for trace in chosen
        for policy in asked
        for seed in numbers
    ]
    if DEFAULT in chosen:
        tasks += [
            Task(data, DEFAULT, policy, numbers[0], order, arrivals_by_cycle)
            for policy in asked
            if policy in (LEARNED, KNOWN)
            for order in range(1, node_orders + 1)
        ]
    started_s = time.monotonic()
    results = sorted(_run_all(tasks, jobs), key=lambda result: result.key)
    known = published(data)
    console = Console(width=_TABLE_WIDTH, highlight=False)
    for table in figures.tables(results, known):
        console.print(table)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(figures.means(results, known), indent=2) + "\n")
    each = output.with_name(f"{output.stem}-runs.json")
    each.write_text(json.dumps([asdict(result) for result in results]) + "\n")
    picture = output.with_suffix(".svg")
    plot.draw(picture, results, known)
    minutes = (time.monotonic() - started_s) / 60
    Console(stderr=True, highlight=False).print(
        f"{len(tasks)} runs in {minutes:.1f} minutes; written: {output}, {each}, {picture}"
    )


def _run_all(tasks: Sequence[Task], jobs: int) -> Iterator[Result]:
    """Yield the results of `tasks` as they come."""
    with Progress(console=Console(stderr=True)) as bar, ProcessPoolExecutor(jobs) as pool:
        shown = bar.add_task("runs", total=len(tasks))
        for done in as_completed([pool.submit(run, task) for task in tasks]):
            bar.advance(shown)
            yield done.result()


def _chosen(option: str, text: str, known: Sequence[str]) -> list[str]:
    found = list(known) if text == "all" else text.split(",")
    for name in found:
        if name not in known:
            raise typer.BadParameter(f"{name} is none of {', '.join(known)}", param_hint=option)
    return found


def _numbers(text: str) -> list[int]:
    try:
        first, _, last = text.partition("-")
        if last:
            return list(range(int(first), int(last) + 1))
        return [int(number) for number in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{text} is neither 42,43 nor 42-51") from error


if __name__ == "__main__":
    typer.run(main)
