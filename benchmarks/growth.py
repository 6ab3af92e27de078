"""How measurements grow with the size: one row a series, one column a size.

Made by `__main__` for the terminal and by `report` for docs/performance/cycles.md, from the series
of `summary`. The exponent says how: 1 is linear, 2 is quadratic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.results import Measurement, text

SECONDS: Final = "s"
CPU_SECONDS: Final = "s of CPU"
MEGABYTES: Final = "MB"
_FROM_SIZE: Final = 500
"""Below it what a cycle costs at any size hides how it grows."""
BUSY: Final = 1.1
"""A machine on which so many times the CPU time passes had something else to do."""


@dataclass(frozen=True)
class Growth:
    """One series."""

    series: str
    values: Mapping[int, float]
    """Size -> what was measured."""

    @property
    def exponent(self) -> float | None:
        """The power of the size with which the values grow, fitted to the larger sizes."""
        sizes = [size for size in self.values if size >= _FROM_SIZE]
        if len(sizes) < 2:
            return None
        values = [self.values[size] for size in sizes]
        return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def of(measurements: Sequence[Measurement], unit: str) -> list[Growth]:
    """Return the series that are measured in `unit`, in the order in which they were."""
    series: dict[str, dict[int, float]] = {}
    for each in measurements:
        if each.size is not None and each.unit == unit:
            series.setdefault(each.series, {})[each.size] = each.value
    return [Growth(name, values) for name, values in series.items()]


def rows(growths: Sequence[Growth], heading: str) -> list[tuple[str, ...]]:
    """Return a table of `growths`, its headings first; `heading`: of the first column."""
    sizes = sorted({size for growth in growths for size in growth.values})
    table: list[tuple[str, ...]] = [(heading, *(f"{size:,}" for size in sizes), "grows as")]
    for growth in growths:
        exponent = growth.exponent
        values = (text(growth.values.get(size)) for size in sizes)
        grows = "" if exponent is None else f"n^{exponent:.1f}"
        table.append((growth.series, *values, grows))
    return table


def passed_per_cpu_second(measurements: Sequence[Measurement]) -> float:
    """Return how many times the CPU time of all series passed meanwhile: 1 on a quiet machine."""
    wall_s, cpu_s = (
        sum(value for growth in of(measurements, unit) for value in growth.values.values())
        for unit in (SECONDS, CPU_SECONDS)
    )
    return wall_s / cpu_s
