"""A large cluster's cycles with a budget: how many they are, and whether the event loop goes on.

`python -m benchmarks.longcycles` measures by itself; it is no part of `make bench`. The world is
that of the longest cycle in `room`: every node is full, and as many jobs wait whose queue may
reclaim. Cycles run as the scheduler runs them, in a thread beside an event loop, in which a timer
notes how late it is. Evicted pods are gone before the next cycle.
"""

import asyncio
import gc
import os
import time
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from benchmarks import roomworlds
from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.objects.watched import Pod
from bindery.kube.watches.store import Change, EventType
from bindery.observability.interpreter import collect_rarely
from bindery.scheduler.background import BackgroundRunner
from bindery.scheduler.engine import Engine
from bindery.scheduler.planning.rounds import Deadline

_TICK_S: Final = 0.02
_LIMIT_S: Final = 3600.0


@dataclass
class Lateness:
    """How late a timer of the event loop was at most."""

    worst_s: float = 0.0

    async def watch(self) -> None:
        """Note it until cancelled."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(_TICK_S)
            self.worst_s = max(self.worst_s, time.monotonic() - before - _TICK_S)


@dataclass(frozen=True)
class Round:
    """All cycles until one ends that is not cut, in CPU seconds and in those that passed."""

    cpu_s: list[float]
    wall_s: list[float]
    evictions: int
    late_s: float


async def round_of(nodes: int, budget_s: float) -> Round:
    """Run one round in a world of `nodes`. The budget is of CPU time, whatever else runs."""
    engine = Engine(SchedulerConfiguration(), time.time)
    pods: dict[str, Pod] = {}
    for item in roomworlds.full_of_single_jobs(nodes).objects:
        if isinstance(item, Pod):
            pods[item.metadata.uid] = item
        engine.cluster.apply(Change(EventType.ADDED, item, None))
    gc.collect()
    lateness, runner = Lateness(), BackgroundRunner()
    watching = asyncio.create_task(lateness.watch())
    cpu_s, wall_s, evictions = list[float](), list[float](), 0
    while not cpu_s or engine.report.is_cut:
        deadline, before = Deadline(budget_s, time.process_time), (time.process_time(), time.time())
        cycle = engine.cycle(deadline=deadline)
        await runner.run(cycle, lambda _: None, deadline, _LIMIT_S)
        cpu_s.append(time.process_time() - before[0])
        wall_s.append(time.time() - before[1])
        evictions += len(engine.report.evictions)
        for eviction in engine.report.evictions:
            pod = pods[eviction.task.uid]
            engine.cluster.apply(Change(EventType.DELETED, pod, pod))
    watching.cancel()
    return Round(cpu_s, wall_s, evictions, lateness.worst_s)


def main(
    nodes: Annotated[int, typer.Option(help="How large the cluster is.")] = 4000,
    budget: Annotated[list[float], typer.Option(help="CPU seconds; may be repeated.")] = [],  # noqa: B006
) -> None:
    """Measure rounds of cycles with several budgets."""
    collect_rarely()
    titles = (
        "budget",
        "cycles",
        "longest cycle",
        "all, CPU",
        "all, wall",
        "evictions",
        "loop late",
    )
    typer.echo(f"| {' | '.join(titles)} |")
    typer.echo(f"|{' --: |' * len(titles)}")
    for budget_s in budget or (_LIMIT_S, 20.0, 5.0):
        found = asyncio.run(round_of(nodes, budget_s))
        typer.echo(
            f"| {'none' if budget_s == _LIMIT_S else f'{budget_s:g} s'} | {len(found.cpu_s)} | "
            f"{max(found.cpu_s):.1f} s | {sum(found.cpu_s):.1f} s | {sum(found.wall_s):.1f} s | "
            f"{found.evictions} | {found.late_s * 1000:.0f} ms |"
        )
    typer.echo(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    typer.run(main)
