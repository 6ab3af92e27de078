"""From laps and rates to measurements: what is compared with what.

Called by `__main__` with whatever was run. The one invariant: both sides of a ratio come from the
same run on the same control plane.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Final

import msgspec

from benchmarks import (
    agentnode,
    beside,
    binder,
    dashboard,
    grouping,
    hollow,
    nodedecisions,
    racetable,
    realnode,
)
from benchmarks.binder import Found, Sizes
from benchmarks.growth import CPU_SECONDS, MEGABYTES, SECONDS
from benchmarks.races import Standing
from benchmarks.racetable import CPU_UNIT
from benchmarks.results import Better, Measurement, measured
from benchmarks.room import CASES, Sample

MEMORY_LIMIT_MB: Final = 400.0
PLANNING_BARS: Final = {1000: 5000.0, 5000: 3000.0}
"""Nodes -> pods in gangs that are to be planned in a second."""

HAND_OVERS_BAR: Final = 40.0
"""Hand-overs of one node's lock that are to be made in a second."""

GROUPING_BARS: Final = {"writes": 0.15, "memory": 200.0}
"""Requests that write for each pod, and MB, of the grouper with 10,000 pods in 1,000 Jobs."""

_COUNTED: Final = ("scheduler", "binder", "kube-scheduler", "bare-client", "kube-apiserver", "etcd")
"""The processes whose CPU time is listed."""

Standings = Mapping[str, Standing]
"""`workload/contender`, such as `gangs/bindery`, to its laps."""

_GANGS: Final = {
    "gangs": "gangs",
    "gangs-of-2": "gangs of 2",
    "gangs-of-100": "gangs of 100",
    "mixed-gangs": "gangs of 2, 10 and 100 beside each other",
    "namespaces": "gangs over ten namespaces",
}
"""Workload -> what it is called."""
_REQUEST_A_GANG: Final = "a bare client, a request a gang"
_BY_AIOHTTP: Final = "a bare client on aiohttp, a request a gang"
_OTHERS: Final = {
    _REQUEST_A_GANG: ("bare-client",),
    _BY_AIOHTTP: ("bare-client-aiohttp",),
    "a bare client, 50 pods a request": ("bare-client-50-pods",),
    "one Statement a request": ("bindery-max-statements-1",),
    "bindings alone": ("bindings-alone",),
    "kube-scheduler at its better setting": ("kube-scheduler", "kube-scheduler-10-percent"),
}
"""What Bindery is compared with, to the contenders of which the fastest counts."""


def of_races(standings: Standings) -> Iterator[Measurement]:
    """Yield comparisons, a line for each race, memory and the CPU time of Bindery's processes."""
    for workload, name in {**_GANGS, "singles": "single pods"}.items():
        yield from _comparisons(standings, workload, name)
    yield from racetable.measurements(standings)
    yield from _memory(standings)
    for key, standing in standings.items():
        if len(own := racetable.own_processes(standing)) > 1:
            yield from _cpu({key: standing}, own)


def of_grouping(standing: grouping.Standing) -> Iterator[Measurement]:
    """Yield rate, requests, memory and CPU time of the grouper."""
    rate, bare = standing.pods_per_second, standing.bare_pods_per_second
    title = "grouping Jobs: against a bare client that creates the PodGroups"
    yield measured(title, rate, "pods/s", Better.HIGHER, bare)
    writes, bar = standing.writes_per_pod, GROUPING_BARS["writes"]
    yield measured("grouping Jobs: writes", writes, "requests/pod", Better.LOWER, bar)
    requests = standing.requests_per_pod
    yield measured("grouping Jobs: requests", requests, "requests/pod", Better.LOWER)
    peak, bar = standing.peak_mb, GROUPING_BARS["memory"]
    yield measured("peak memory: grouper", peak, MEGABYTES, Better.LOWER, bar)
    cpu = standing.cpu_s_per_1000_pods
    yield measured("grouping Jobs: own CPU", cpu, CPU_UNIT, Better.LOWER)


def of_hollow_nodes(lap: hollow.Lap) -> Iterator[Measurement]:
    """Yield memory, idle CPU and the time until all pods run."""
    nodes, pods = f"{lap.nodes:,} hollow nodes", f"{lap.pods:,} pods"
    yield measured(f"peak memory: {nodes}", lap.empty_mb, MEGABYTES, Better.LOWER)
    yield measured(f"peak memory: {nodes}, {pods}", lap.full_mb, MEGABYTES, Better.LOWER)
    for what, percent in (
        (nodes, lap.empty_cpu_percent),
        (f"{nodes}, {pods}", lap.full_cpu_percent),
    ):
        yield measured(f"idle CPU: {what}", percent, "% of a core", Better.LOWER)
    title = f"{nodes}: until {pods} run, against their creation"
    yield measured(title, lap.all_running_s, "s", Better.LOWER, lap.created_s)


def of_beside(lap: beside.Lap) -> Iterator[Measurement]:
    """Yield what the agent beside a kubelet takes, and what the kubelet does with it."""
    for span in lap.spans:
        cpu = "% of a core"
        yield measured(f"beside a kubelet, {span.name}: CPU", span.agent_cpu, cpu, Better.LOWER)
        title = f"beside a kubelet, {span.name}: peak memory"
        yield measured(title, span.agent_mb, MEGABYTES, Better.LOWER)
        title = f"beside a kubelet, {span.name}: the kubelet's CPU"
        yield measured(title, span.kubelet_cpu, cpu, Better.LOWER)
    title = "the kubelet's CPU with these pods and no agent"
    yield measured(title, lap.kubelet_alone_cpu, "% of a core", Better.LOWER)
    title = "beside a kubelet: until a report lists a new pod, median"
    yield measured(title, lap.report_s, "s", Better.LOWER)


def of_agent_node(laps: agentnode.Laps, pods: int) -> Iterator[Measurement]:
    """Yield medians of the agent's runs against the kubelet's."""
    cpu, at_once = "% of a core", f"{pods} pods at once"
    values: dict[tuple[str, str], Callable[[agentnode.Lap], float]] = {
        (f"{at_once}, creation to first line, median", "s"): lambda lap: lap.first_line_s,
        (f"{at_once}, creation to first line, last pod", "s"): lambda lap: lap.last_line_s,
        (f"{at_once}, until all are Running", "s"): lambda lap: lap.running_s,
        (f"{at_once}, own CPU", CPU_SECONDS): lambda lap: lap.cpu_s,
        (f"{at_once}, containerd's CPU", CPU_SECONDS): lambda lap: lap.runtime_cpu_s,
        (f"{pods} pods deleted, until all are gone", "s"): lambda lap: lap.gone_s,
        ("idle, no pods: CPU", cpu): lambda lap: lap.empty.cpu_percent,
        ("idle, no pods: memory", MEGABYTES): lambda lap: lap.empty.resident_mb,
        (f"idle, {pods} pods: CPU", cpu): lambda lap: lap.full.cpu_percent,
        (f"idle, {pods} pods: memory", MEGABYTES): lambda lap: lap.full.resident_mb,
    }
    for (title, unit), value in values.items() if laps else ():
        ours, theirs = (
            median(map(value, laps[name])) for name in (agentnode.AGENT, agentnode.KUBELET)
        )
        yield measured(f"agent's node: {title}", ours, unit, Better.LOWER, theirs)


def of_real_node(ways: realnode.Ways) -> Iterator[Measurement]:
    """Yield the times from creation to bound and to running, against kube-scheduler's."""
    times: dict[str, Callable[[realnode.Way], float]] = {
        "bound": lambda way: way.bound_s,
        "running": lambda way: way.running_s,
    }
    for until, seconds in times.items():
        found = {
            name: quantiles(map(seconds, each), n=100, method="inclusive")
            for name, each in ways.items()
        }
        for percentile in (50, 99) if found else ():
            ours, theirs = (found[name][percentile - 1] for name in ("bindery", "kube-scheduler"))
            title = f"real node, creation to {until}, p{percentile}"
            yield measured(title, ours, "s", Better.LOWER, theirs)


def of_dashboard(lap: dashboard.Lap) -> Iterator[Measurement]:
    """Yield the slowest page, the idle CPU and the memory of the page's process."""
    size = f"{lap.world.nodes} nodes, {lap.world.pods} pods"
    for planning, when in ((False, "no plan runs"), (True, "a plan runs")):
        slowest = max((each.p95 for each in lap.times if each.planning == planning), default=None)
        if slowest is not None:
            title = f"dashboard, {size}: first byte of the slowest page, p95, while {when}"
            bar = dashboard.FIRST_BYTE_BAR_MS
            yield measured(title, slowest, "ms", Better.LOWER, bar)
    title = f"dashboard, {size}: CPU while no page is open"
    idle, bar = lap.idle_cpu_percent, dashboard.IDLE_BAR_PERCENT
    yield measured(title, idle, "% of a core", Better.LOWER, bar)
    title = f"dashboard, {size}: peak memory, against a scheduler and 100 MB"
    most = lap.scheduler_mb + dashboard.MEMORY_BAR_MB
    yield measured(title, lap.page_mb, MEGABYTES, Better.LOWER, most)


def _comparisons(standings: Standings, workload: str, name: str) -> Iterator[Measurement]:
    """Yield the rate and CPU time of Bindery beside those of the others for `workload`."""
    of = {
        key.removeprefix(f"{workload}/"): standing
        for key, standing in standings.items()
        if key.startswith(f"{workload}/")
    }
    ours = of.get("bindery")
    if ours is not None:
        for other, keys in _OTHERS.items():
            if rates := [of[key].pods_per_second for key in keys if key in of]:
                title = f"{name}: Bindery against {other}"
                rate = ours.pods_per_second
                yield measured(title, rate, "pods/s", Better.HIGHER, max(rates))
    for other in (_REQUEST_A_GANG, _BY_AIOHTTP):
        theirs = of.get(_OTHERS[other][0])
        if ours is not None and theirs is not None:
            own_s, bare_s = map(racetable.own_cpu_s_per_1000_pods, (ours, theirs))
            title = f"{name}: own CPU, Bindery against {other}"
            yield measured(title, own_s, CPU_UNIT, Better.LOWER, bare_s)
    if {"bindery-max-pods-1", "bare-client-max-pods-1"} <= of.keys():
        rate, bare = (of[f"{key}-max-pods-1"].pods_per_second for key in ("bindery", "bare-client"))
        title = f"{name}, one pod a request: Bindery against a bare client"
        yield measured(title, rate, "pods/s", Better.HIGHER, bare)


def of_binder(found: Found, sizes: Sizes) -> Iterator[Measurement]:
    """Yield the binder's rates, hand-overs and delays, as far as they were measured."""
    for each in _of_binder(found, sizes):
        yield msgspec.structs.replace(each, of_binder=True)


def _of_binder(found: Found, sizes: Sizes) -> Iterator[Measurement]:
    standings = found.standings
    pairs = [("binder alone, plain: against a bare client", binder.PLAIN, binder.BARE)]
    for plugin, key in binder.WITH_PLUGINS.items():
        name = f"binder alone, {plugin}, {sizes.plugin_pods} pods: against a bare client"
        pairs.append((name, key, binder.FEW_BARE))
    for name, key, other in pairs:
        if key in standings:
            bare = standings[other].pods_per_second if other in standings else None
            rate = standings[key].pods_per_second
            yield measured(name, rate, "pods/s", Better.HIGHER, bare)
    for name, key in (
        ("lock hand-overs on one node", binder.HAND_OVERS),
        ("lock hand-overs on one node, HAMi's whole handshake", binder.HANDSHAKES),
    ):
        if key in standings:
            rate = standings[key].pods_per_second
            yield measured(name, rate, "per second", Better.HIGHER, HAND_OVERS_BAR)
    yield from _delays(found, sizes)
    yield from _cpu(standings, _COUNTED)


def _delays(found: Found, sizes: Sizes) -> Iterator[Measurement]:
    idle, waiting = found.delays.get(binder.IDLE), found.delays.get(binder.WAITING)
    for percentile, of in (
        ("p50", lambda delays: delays.p50_s),
        ("p99", lambda delays: delays.p99_s),
    ):
        calm_s = median(map(of, idle)) if idle else None
        if calm_s is not None:
            yield measured(f"commit to bound, {percentile}: idle", calm_s, "s", Better.LOWER)
        if waiting:
            name = f"commit to bound, {percentile}: while {sizes.waiting} requests wait on volumes"
            yield measured(name, median(map(of, waiting)), "s", Better.LOWER, calm_s)


def of_planning(rates: Mapping[tuple[str, int], float]) -> Iterator[Measurement]:
    """Yield the planning rates; (what is planned, nodes) -> pods a second."""
    for (what, nodes), rate in rates.items():
        bar = PLANNING_BARS.get(nodes) if what == "gangs" else None
        name = f"planning {what}, {nodes} nodes"
        yield measured(name, rate, "pods/s", Better.HIGHER, bar)


def of_room(samples: Iterable[Sample]) -> Iterator[Measurement]:
    """Yield wall seconds, CPU seconds and peak memory of each case at each size, as series."""
    cases = {case.name: case for case in CASES}
    for sample in samples:
        case = cases[sample.case]
        name = f"{case.name}, {sample.size} {case.unit}"
        bar_s = case.bar_s if sample.size == case.bar_at else None
        for each in (
            measured(name, sample.wall_s, SECONDS, Better.LOWER, bar_s),
            measured(f"CPU: {name}", sample.cpu_s, CPU_SECONDS, Better.LOWER),
            measured(f"peak memory: {name}", sample.peak_mb, MEGABYTES, Better.LOWER),
        ):
            yield msgspec.structs.replace(each, series=case.name, size=sample.size)


@dataclass(frozen=True)
class ZoneRates:
    """Pods that are planned in a second."""

    nodes: int
    with_zones: float
    without: float


def of_zones(rates: ZoneRates) -> Iterator[Measurement]:
    """Yield planning on nodes with NUMA zones, against the same nodes without."""
    name = f"planning gangs, {rates.nodes} nodes with NUMA zones against without"
    yield measured(name, rates.with_zones, "pods/s", Better.HIGHER, rates.without)


def of_node_decisions(samples: Iterable[nodedecisions.Sample]) -> Iterator[Measurement]:
    """Yield the time of each decision of a node."""
    for each in samples:
        yield measured(each.name, each.milliseconds, "ms", Better.LOWER, each.bar_ms)


def _cpu(standings: Standings, processes: Collection[str]) -> Iterator[Measurement]:
    for key, standing in standings.items():
        for process in (name for name in processes if name in standing.processes):
            used_s = standing.cpu_s_per_1000_pods(process)
            name = f"CPU: {process} in {key}"
            yield measured(name, used_s, CPU_UNIT, Better.LOWER)


def _memory(standings: Standings) -> Iterator[Measurement]:
    peaks: dict[str, float] = {}
    for standing in standings.values():
        for process in standing.processes:
            peaks[process] = max(peaks.get(process, 0.0), standing.peak_mb(process))
    for process, peak_mb in peaks.items():
        limit = MEMORY_LIMIT_MB if process in {"scheduler", "binder"} else None
        yield measured(f"peak memory: {process}", peak_mb, "MB", Better.LOWER, limit)
