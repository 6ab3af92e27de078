"""What was measured, as `build/bench.json` holds it, and what is to be reached.

Written by `__main__`, read by `report`. A measurement that has no baseline in this run has no
ratio either: nothing is compared with numbers of other runs.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec
from rich.table import Table


class Better(StrEnum):
    """Which way is better."""

    HIGHER = "higher"
    LOWER = "lower"


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One number."""

    name: str
    value: float
    unit: str
    better: Better
    baseline: float | None = None
    """What it is compared with, in the same unit."""
    ratio: float | None = None
    """value / baseline."""
    series: str = ""
    """What is measured at several sizes, the same in the same unit at all of them."""
    size: int | None = None
    """The size in its series."""
    race: str = ""
    """The race whose line in the table of races it is part of."""
    column: str = ""
    """Its column there."""
    of_binder: bool = False
    """Whether it is of the binder alone, whose table stands by itself."""


NOISE_BELOW: Final = 0.95
NOISE_ABOVE: Final = 1.05
"""Ratios that count as equal: rounds of one contender differ by as much."""

TO_REACH: Final[Mapping[str, float]] = {
    "gangs: Bindery against kube-scheduler at its better setting": 1.5,
    "gangs: Bindery against a bare client, a request a gang": 1.15,
    "gangs: Bindery against a bare client, 50 pods a request": 0.8,
    "gangs: Bindery against a bare client on aiohttp, a request a gang": 1.15,
    "gangs: own CPU, Bindery against a bare client, a request a gang": 1.6,
    "gangs: own CPU, Bindery against a bare client on aiohttp, a request a gang": 1.6,
    "gangs over ten namespaces: Bindery against one Statement a request": NOISE_BELOW,
    "single pods: Bindery against one Statement a request": NOISE_BELOW,
    "single pods: Bindery against kube-scheduler at its better setting": 1.5,
    "commit to bound, p50: idle": NOISE_ABOVE,
    "commit to bound, p99: idle": NOISE_ABOVE,
    "binder alone, plain: against a bare client": 0.8,
    "commit to bound, p99: while 200 requests wait on volumes": 2.0,
    "lock hand-overs on one node": 1.0,
    "planning gangs, 1000 nodes": 1.0,
    "planning gangs, 5000 nodes": 1.0,
    "peak memory: scheduler": 1.0,
    "peak memory: binder": 1.0,
    "peak memory: grouper": 1.0,
    "grouping Jobs: writes": 1.0,
    "full cycle with reclaim, 500 nodes": 1.0,
    "does not fit: a pinned pod on every node, 500 nodes": 1.0,
    "does not fit: only half may be reclaimed, 500 nodes": 1.0,
    "reclaim for one large gang, 500 nodes": 1.0,
    "consolidation for gangs of ten, 500 nodes": 1.0,
    "gang in one rack, 500 nodes": 1.0,
    "sub-groups over HyperNodes, 1000 nodes": 1.0,
    "one gang among HyperNodes, 6000 nodes": 1.0,
    "two pods a node, apart and spread, 5000 nodes": 1.0,
    "reclaim in one rack, 500 nodes": 1.0,
    "four pods a node with parts of GPUs by HAMi, 1000 nodes": 1.0,
    "a gang of three on 5,000 nodes, 3000 gangs": 1.0,
    "fair-share division, 1000 queues": 1.0,
    "planning gangs, 1000 nodes with NUMA zones against without": 0.7,
    "topology merge, 8 zones, one zone": 1.0,
    "topology merge, 8 zones, two zones": 1.0,
    "topology merge, 8 zones, no preferred choice": 1.0,
    "admission, 2 zones, single-numa-node": 1.0,
    "admission, 8 zones, single-numa-node": 1.0,
    "admission, 8 zones, best-effort": 1.0,
    "prediction for 5000 nodes, 2 zones, single-numa-node, one zone": 1.0,
    "prediction for 5000 nodes, 8 zones, single-numa-node, one zone": 1.0,
    "prediction for 5000 nodes, 8 zones, restricted, two zones": 1.0,
    "prediction for 5000 nodes, 8 zones, best-effort, no preferred choice": 1.0,
    **{
        f"dashboard, 5000 nodes, 50000 pods: {what}": 1.0
        for what in (
            "first byte of the slowest page, p95, while no plan runs",
            "first byte of the slowest page, p95, while a plan runs",
            "CPU while no page is open",
            "peak memory, against a scheduler and 100 MB",
        )
    },
}
"""Name -> the ratio that is asked for: at least, or where lower is better at most."""


def measured(
    name: str, value: float, unit: str, better: Better, baseline: float | None = None
) -> Measurement:
    """Return the measurement, rounded to four digits, with its ratio to the baseline."""
    return Measurement(
        name=name,
        value=_rounded(value),
        unit=unit,
        better=better,
        baseline=None if baseline is None else _rounded(baseline),
        ratio=_rounded(value / baseline) if baseline else None,
    )


def is_reached(measurement: Measurement) -> bool | None:
    """Whether what is to be reached is; None when nothing is, or nothing was compared."""
    bar = TO_REACH.get(measurement.name)
    if bar is None or measurement.ratio is None:
        return None
    if measurement.better is Better.HIGHER:
        return measurement.ratio >= bar
    return measurement.ratio <= bar


def write(path: Path, measurements: Sequence[Measurement]) -> None:
    """Write them as a JSON list."""
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(measurements), indent=2)
    path.write_bytes(encoded + b"\n")


def read(path: Path) -> list[Measurement]:
    """Read what `write` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=list[Measurement])


def at_one_size(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return those of the table of single numbers: of no series, and of no line of a race."""
    return [each for each in measurements if not each.series and not each.race]


def cells(measurement: Measurement) -> tuple[str, ...]:
    """Return a row of the table: name, value, unit, baseline, ratio, what is to be reached."""
    bar, reached = TO_REACH.get(measurement.name), is_reached(measurement)
    sign = "≥" if measurement.better is Better.HIGHER else "≤"
    verdict = {None: "", True: " reached", False: " MISSED"}[reached]
    return (
        measurement.name,
        text(measurement.value),
        measurement.unit,
        text(measurement.baseline),
        text(measurement.ratio),
        "" if bar is None else f"{sign} {bar:g}{verdict}",
    )


HEADINGS: Final = ("measured", "value", "unit", "baseline", "ratio", "to reach")


def table(measurements: Sequence[Measurement]) -> Table:
    """Return the table for the terminal."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(HEADINGS):
        drawn.add_column(heading, justify="right" if index in {1, 3, 4} else "left")
    for measurement in measurements:
        style = "red" if is_reached(measurement) is False else None
        drawn.add_row(*cells(measurement), style=style)
    return drawn


def plain_table(rows: Sequence[Sequence[str]]) -> Table:
    """Return `rows`, headings first, for the terminal; all columns but the first hold numbers."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(rows[0]):
        drawn.add_column(heading, justify="right" if index else "left")
    for row in rows[1:]:
        drawn.add_row(*row)
    return drawn


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def text(value: float | None) -> str:
    """Return three digits of `value`, or all before the point; nothing for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
