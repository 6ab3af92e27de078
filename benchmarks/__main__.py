"""`python -m benchmarks`: measures, prints a table, writes build/bench.json.

Planning and making room run first, in memory; then every contender races on one control plane, in
turns, so that what else the machine does meets all of them alike; then the binder, the grouper and
hollow nodes are measured alone, each on another, and the dashboard in memory. Progress goes to
standard error.
"""

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import typer
from rich.console import Console

from benchmarks import (
    agentnode,
    beside,
    binder,
    catalogue,
    dashboard,
    grouping,
    growth,
    hollow,
    nodedecisions,
    nodevolumes,
    racetable,
    realnode,
    results,
    room,
    summary,
)
from benchmarks.cluster import Cluster, open_cluster
from benchmarks.contenders import Contender
from benchmarks.dashboard import Spans
from benchmarks.pageworlds import PageWorld
from benchmarks.planning import pods_per_second
from benchmarks.races import Lap, Standing, race
from benchmarks.results import Measurement
from benchmarks.workload import Workload
from devcluster.realnode import machine

_GROWTH: Final = (125, 250, 500, 1000, 2000, 4000, 5000, 8000)
"""Nodes at which planning is measured."""

_KINDS: Final = (
    "planning",
    "node",
    "room",
    *catalogue.workloads(0, 1),
    "binder",
    "grouping",
    "hollow",
    "realnode",
    "beside",
    "agentnode",
    "dashboard",
)
"""What `--only` takes; each has parts."""

_WAYS_A_RUN: Final = 20
"""Pods of each contender on a real node, for each run."""
_PODS_BESIDE: Final = 100
_PODS_OF_A_NODE: Final = 100
_DASHBOARDS: Final = (PageWorld(1_000, 10_000), PageWorld(5_000, 50_000))
"""The clusters with which the dashboard is measured."""
_TABLE_WIDTH: Final = 120

_progress = Console(stderr=True, highlight=False)


@dataclass(frozen=True)
class Plan:
    """What to measure, and how large."""

    only: Sequence[str]
    nodes: int
    pods: int
    gang_size: int
    runs: int
    profiles: Path | None

    def wants(self, name: str) -> bool:
        """Whether the measurement `name` was asked for."""
        return not self.only or any(f"{name}/".startswith(f"{asked}/") for asked in self.only)

    def workload(self, name: str) -> Workload:
        """Return what a race such as `gangs/bindery` is about."""
        return catalogue.workloads(self.pods, self.gang_size)[name.partition("/")[0]]

    def binder_sizes(self) -> binder.Sizes:
        """Return how large the laps of the binder alone are."""
        return binder.Sizes(self.nodes, self.pods, self.gang_size, self.runs)

    def contenders(self) -> dict[str, Callable[[], Contender]]:
        """Return what races, by name, in the order of a round."""
        every = catalogue.contenders(self.profiles)
        return {name: make for name, make in every.items() if self.wants(name)}


def plan_in_memory(plan: Plan) -> Mapping[tuple[str, int], float]:
    """Measure planning alone; (what, nodes) -> median pods a second."""
    rates: dict[tuple[str, int], float] = {}
    kinds: dict[str, tuple[int, ...]] = {"gangs": (plan.gang_size,), "single pods": ()}
    for what, gang_sizes in kinds.items():
        for nodes in _GROWTH:
            workload = Workload(plan.pods, gang_sizes)
            rate = median(pods_per_second(nodes, workload) for _ in range(plan.runs))
            rates[what, nodes] = rate
            _progress.print(f"planning {what} on {nodes} nodes: {rate:,.0f} pods/s")
    return rates


def plan_with_zones(plan: Plan) -> summary.ZoneRates:
    """Measure planning on nodes with and without NUMA zones, in turns; pods a second."""
    workload = Workload(plan.pods, (plan.gang_size,), is_guaranteed=True)
    found = [
        (pods_per_second(plan.nodes, workload, zones=2), pods_per_second(plan.nodes, workload))
        for _ in range(plan.runs)
    ]
    rates = summary.ZoneRates(plan.nodes, *(median(each) for each in zip(*found, strict=True)))
    _progress.print(f"planning: {rates.with_zones:,.0f} pods/s with zones, {rates.without:,.0f}")
    return rates


def make_room(plan: Plan) -> Iterator[room.Sample]:
    """Measure cycles that make room, and the division of shares."""
    for sample in room.samples(plan.runs):
        _progress.print(
            f"{sample.case}, size {sample.size}: {sample.wall_s:.4f} s, "
            f"{sample.cpu_s:.4f} s of CPU, peak {sample.peak_mb:,.0f} MB"
        )
        yield sample


async def run_races(plan: Plan) -> dict[str, Standing]:
    """Let the contenders race, round by round."""
    contenders = plan.contenders()
    laps: dict[str, list[Lap]] = {name: [] for name in contenders}
    with tempfile.TemporaryDirectory(prefix="bindery-bench-") as directory:
        async with open_cluster(Path(directory), plan.nodes, _progress.print) as cluster:
            _progress.print("warming up, not counted: ", end="")
            first = next(iter(contenders))
            await _lap(cluster, contenders[first](), plan.workload(first))
            for number in range(plan.runs):
                for name in _rotated(list(contenders), number):
                    _progress.print(f"round {number + 1} of {plan.runs}, {name}: ", end="")
                    laps[name].append(await _lap(cluster, contenders[name](), plan.workload(name)))
    return {name: Standing(tuple(each)) for name, each in laps.items()}


async def group_jobs(plan: Plan) -> grouping.Standing:
    """Measure the grouper with twice as many pods, in Jobs."""
    jobs = max(1, 2 * plan.pods // grouping.JOB_SIZE)
    with tempfile.TemporaryDirectory(prefix="bindery-bench-") as directory:
        async with open_cluster(Path(directory), 1, _progress.print) as cluster:
            size = grouping.JOB_SIZE
            return await grouping.measure(cluster, jobs, size, plan.runs, _progress.print)


async def run_hollow_nodes(plan: Plan) -> hollow.Lap:
    """Measure hollow nodes with twice as many pods."""
    with tempfile.TemporaryDirectory(prefix="bindery-bench-") as directory:
        async with open_cluster(Path(directory), 1, _progress.print) as cluster:
            return await hollow.measure(cluster, plan.nodes, 2 * plan.pods, _progress.print)


def run_real_node(plan: Plan) -> realnode.Ways:
    """Measure pods on a real node, where this machine can have one."""
    if reasons := list(machine.lacks()):
        _progress.print(f"no real node here: {'; '.join(reasons)}", markup=False)
        return {}
    with tempfile.TemporaryDirectory(prefix="bindery-bench-") as directory:
        return realnode.measure(Path(directory), _WAYS_A_RUN * plan.runs, _progress.print)


def run_beside() -> beside.Lap | None:
    """Measure the agent beside a kubelet, where this machine can have a real node."""
    if reasons := list(machine.lacks()):
        _progress.print(f"no real node here: {'; '.join(reasons)}", markup=False)
        return None
    with tempfile.TemporaryDirectory(prefix="bindery-bench-") as directory:
        return beside.measure(Path(directory), _PODS_BESIDE, _progress.print)


def run_agent_node(plan: Plan) -> agentnode.Laps:
    """Measure a node of the agent beside one of a kubelet, where this machine can have them."""
    if reasons := list(machine.lacks()):
        _progress.print(f"no real node here: {'; '.join(reasons)}", markup=False)
        return {}
    with tempfile.TemporaryDirectory(prefix="bindery-bench-") as directory:
        return agentnode.measure(Path(directory), _PODS_OF_A_NODE, plan.runs, _progress.print)


def run_dashboard() -> Iterator[Measurement]:
    """Measure the pages of the dashboard at each size."""
    for world in _DASHBOARDS:
        yield from summary.of_dashboard(dashboard.measure(world, Spans(), _progress.print))


def run_components(plan: Plan) -> Iterator[Measurement]:
    """Measure the other components, each alone."""
    if plan.wants("grouping"):
        yield from summary.of_grouping(asyncio.run(group_jobs(plan)))
    if plan.wants("hollow"):
        yield from summary.of_hollow_nodes(asyncio.run(run_hollow_nodes(plan)))
    if plan.wants("realnode"):
        yield from summary.of_real_node(run_real_node(plan))
    if plan.wants("beside") and (lap := run_beside()) is not None:
        yield from summary.of_beside(lap)
    if plan.wants("agentnode"):
        yield from summary.of_agent_node(run_agent_node(plan), _PODS_OF_A_NODE)
    if plan.wants("dashboard"):
        yield from run_dashboard()


def _rotated(names: Sequence[str], number: int) -> Sequence[str]:
    """Return the order of a round: nobody always runs right after the same other."""
    start = number % len(names)
    return [*names[start:], *names[:start]]


async def _lap(cluster: Cluster, contender: Contender, workload: Workload) -> Lap:
    lap = await race(cluster, contender, workload)
    _progress.print(
        f"{lap.pods} pods in {lap.all_bound_s:.1f} s, {lap.pods_per_second:,.0f} pods/s, "
        f"the first after {lap.first_bind_s:.2f} s, {lap.writes.all / lap.pods:.2f} writes per pod"
    )
    return lap


def main(
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help=f"{', '.join(_KINDS)}, or a part: gangs/bindery; repeat."
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes in the races.")] = 1000,
    pods: Annotated[int, typer.Option(min=1, help="Pods in each measurement.")] = 5000,
    gang_size: Annotated[int, typer.Option(min=1, help="Pods of a gang.")] = 10,
    runs: Annotated[int, typer.Option(min=1, help="Of each; medians are reported.")] = 5,
    output: Annotated[Path, typer.Option(help="The JSON file.")] = Path("build/bench.json"),
    profile: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Run Bindery under cProfile; slower. Statistics: DIR."),
    ] = None,
) -> None:
    """Measure Bindery, in memory and against kube-scheduler and a bare client.

    For example, only making room and dividing shares, from 125 to 4,000 nodes; then the report:

    python -m benchmarks --only room && python -m benchmarks.report build/bench.json

    Gangs of ten against a bare client and kube-scheduler, and from commit to bound at low load:

    python -m benchmarks --only gangs --only binder/idle

    The grouper alone, 2,000 pods in 200 Jobs:

    python -m benchmarks --only grouping --pods 1000 --runs 1

    One pod after the other on a real node (needs root), beside kube-scheduler:

    python -m benchmarks --only realnode --runs 1
    """
    if pods % gang_size:
        raise typer.BadParameter("pods must be a multiple of the gang size")
    plan = Plan(only or [], nodes, pods, gang_size, runs, profile)
    measurements: list[Measurement] = []
    rates = plan_in_memory(plan) if plan.wants("planning") else {}
    if plan.wants("node"):
        measurements += summary.of_node_decisions(nodedecisions.samples())
        measurements += summary.of_node_decisions(nodevolumes.samples())
        measurements += summary.of_zones(plan_with_zones(plan))
    room_measurements = list(summary.of_room(make_room(plan))) if plan.wants("room") else []
    if plan.contenders():
        measurements += summary.of_races(asyncio.run(run_races(plan)))
    rounds = binder.Rounds(plan.binder_sizes(), _progress.print, plan.profiles)
    found = asyncio.run(rounds.run(plan.wants))
    measurements += summary.of_binder(found, plan.binder_sizes())
    measurements += run_components(plan)
    measurements += summary.of_planning(rates)
    measurements += room_measurements
    if not measurements:
        raise typer.BadParameter("nothing is called so", param_hint="--only")
    results.write(output, measurements)
    # A pipe has no width of its own; the names are not to be folded there.
    width = None if sys.stdout.isatty() else _TABLE_WIDTH
    console = Console(width=width)
    barred = [each for each in room_measurements if each.baseline is not None]
    console.print(results.table([*results.at_one_size(measurements), *barred]))
    if any(each.race for each in measurements):
        console.print(results.plain_table(racetable.rows(measurements)))
    if room_measurements:
        growths = growth.of(room_measurements, growth.SECONDS)
        console.print(results.plain_table(growth.rows(growths, "seconds, by nodes or queues")))
    _progress.print(f"written to {output}")


if __name__ == "__main__":
    typer.run(main)
