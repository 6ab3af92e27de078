"""The table of the races: a line for each contender, with everything that it took.

The measurements are made by `summary`; `__main__` and `report` show the table. The rates that are
compared with what is to be reached stand in the table of single numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from benchmarks.races import Standing
from benchmarks.results import Better, Measurement, measured, text

_CONTROL_PLANE: Final = ("kube-apiserver", "etcd", "kube-controller-manager")
CPU_UNIT: Final = "s per 1,000 pods"


class Column(StrEnum):
    """What is known of a contender."""

    RATE = "pods/s"
    FIRST_BIND = "first bind, s"
    CPU_ALL = "CPU, all"
    CPU_API_SERVER = "API server"
    CPU_OWN = "own"
    WRITES = "requests/pod"
    EVENTS = "Events/pod"


def measurements(standings: Mapping[str, Standing]) -> Iterator[Measurement]:
    """Yield the numbers of all columns for each race, such as `gangs/bindery`."""
    for race, standing in standings.items():
        for column, value in _values(standing).items():
            unit = CPU_UNIT if column in _CPU else column.value
            better = Better.HIGHER if column is Column.RATE else Better.LOWER
            each = measured(f"{column}: {race}", value, unit, better)
            yield msgspec.structs.replace(each, race=race, column=column.value)


def rows(found: Sequence[Measurement]) -> list[tuple[str, ...]]:
    """Return the table, headings first; CPU time is in seconds per 1,000 pods."""
    by_race: dict[str, dict[str, float]] = {}
    for each in found:
        if each.race:
            by_race.setdefault(each.race, {})[each.column] = each.value
    headings = ("race", *Column)
    lines = [(race, *(text(values.get(c)) for c in Column)) for race, values in by_race.items()]
    return [headings, *lines]


def own_processes(standing: Standing) -> tuple[str, ...]:
    """Return the processes of the contender, without those of the control plane."""
    return tuple(name for name in standing.processes if name not in _CONTROL_PLANE)


def own_cpu_s_per_1000_pods(standing: Standing) -> float:
    """Return the median CPU time of the contender, in seconds per 1,000 pods."""
    return standing.cpu_s_per_1000_pods_of(own_processes(standing))


_CPU: Final = (Column.CPU_ALL, Column.CPU_API_SERVER, Column.CPU_OWN)


def _values(standing: Standing) -> dict[Column, float]:
    cpu = standing.cpu_s_per_1000_pods_of
    return {
        Column.RATE: standing.pods_per_second,
        Column.FIRST_BIND: standing.first_bind_s,
        Column.CPU_ALL: cpu(standing.processes),
        Column.CPU_API_SERVER: cpu([p for p in standing.processes if p == "kube-apiserver"]),
        Column.CPU_OWN: own_cpu_s_per_1000_pods(standing),
        Column.WRITES: standing.writes_per_pod,
        Column.EVENTS: standing.events_per_pod,
    }
