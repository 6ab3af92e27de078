"""From laps and rates to measurements: what is compared with what.

Called by `__main__` with whatever was run. The one invariant: both sides of a ratio come from the
same run on the same control plane.
"""

from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Final

import msgspec

from benchmarks import binder
from benchmarks.binder import Found, Sizes
from benchmarks.growth import CPU_SECONDS, MEGABYTES, SECONDS
from benchmarks.races import Standing
from benchmarks.results import Better, Measurement, measured
from benchmarks.room import CASES, Sample

MEMORY_LIMIT_MB: Final = 400.0
PLANNING_BARS: Final = {1000: 5000.0, 5000: 3000.0}
"""Nodes -> pods in gangs that are to be planned in a second."""

HAND_OVERS_BAR: Final = 40.0
"""Hand-overs of one node's lock that are to be made in a second."""

_COUNTED: Final = ("scheduler", "binder", "kube-scheduler", "bare-client", "kube-apiserver", "etcd")
"""The processes whose CPU time is listed."""

Standings = Mapping[str, Standing]
"""`workload/contender`, such as `gangs/bindery`, to its laps."""

_BINDING: Final = (
    ("gangs: Bindery against kube-scheduler", "gangs/bindery", "gangs/kube-scheduler"),
    ("gangs: Bindery against a bare client", "gangs/bindery", "gangs/bare-client"),
    (
        "gangs, one pod a request: Bindery against a bare client",
        "gangs/bindery-max-pods-1",
        "gangs/bare-client-max-pods-1",
    ),
    (
        "gangs, bare client: a request a gang against a request a pod",
        "gangs/bare-client",
        "gangs/bare-client-max-pods-1",
    ),
    ("single pods: Bindery against kube-scheduler", "singles/bindery", "singles/kube-scheduler"),
)
_SOLO: Final = (
    ("gangs: Bindery", "gangs/bindery"),
    ("gangs, one pod a request: Bindery", "gangs/bindery-max-pods-1"),
    ("pods without gangs: kube-scheduler", "gangs/kube-scheduler"),
    ("gangs: bare client", "gangs/bare-client"),
    ("single pods: Bindery", "singles/bindery"),
    ("single pods: kube-scheduler", "singles/kube-scheduler"),
)


def of_races(standings: Standings) -> Iterator[Measurement]:
    """Yield rates, times to the first bind, memory and CPU time."""
    compared = set()
    for name, key, other in _BINDING:
        if key in standings and other in standings:
            rates = standings[key].pods_per_second, standings[other].pods_per_second
            yield measured(name, rates[0], "pods/s", Better.HIGHER, rates[1])
            compared |= {key, other}
    for name, key in _SOLO:
        if key in standings and key not in compared:
            yield measured(name, standings[key].pods_per_second, "pods/s", Better.HIGHER)
    for key, standing in standings.items():
        yield measured(f"first bind: {key}", standing.first_bind_s, "s", Better.LOWER)
    yield from _memory(standings)
    yield from _cpu(standings)


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
    yield from _cpu(standings)


def _delays(found: Found, sizes: Sizes) -> Iterator[Measurement]:
    idle, waiting = (found.delays.get(key) for key in (binder.IDLE, binder.WAITING))
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


def _cpu(standings: Standings) -> Iterator[Measurement]:
    for key, standing in standings.items():
        for process in (name for name in _COUNTED if name in standing.processes):
            used_s = standing.cpu_s_per_1000_pods(process)
            name = f"CPU: {process} in {key}"
            yield measured(name, used_s, "s per 1,000 pods", Better.LOWER)


def _memory(standings: Standings) -> Iterator[Measurement]:
    peaks: dict[str, float] = {}
    for standing in standings.values():
        for process in standing.processes:
            peaks[process] = max(peaks.get(process, 0.0), standing.peak_mb(process))
    for process, peak_mb in peaks.items():
        limit = MEMORY_LIMIT_MB if process in {"scheduler", "binder"} else None
        yield measured(f"peak memory: {process}", peak_mb, "MB", Better.LOWER, limit)
