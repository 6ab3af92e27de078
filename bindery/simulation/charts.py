"""The charts of a report: which lines they have. Drawn as SVG by `page`, as PNG by `picture`."""

from collections.abc import Sequence
from dataclasses import dataclass

from bindery.simulation.report import Report

_MOST_QUEUES = 6


@dataclass(frozen=True)
class Line:
    """A line of a chart."""

    name: str
    times: tuple[float, ...]
    """Hours after the start of the trace, ascending."""
    values: tuple[float, ...]
    is_dashed: bool = False
    colour: int = 0
    """Number of its colour; equal numbers have equal colours."""


@dataclass(frozen=True)
class Chart:
    """A chart over time."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    top: float
    """The highest value of the axis; it begins at 0."""


def charts(named: Sequence[tuple[str, Report]]) -> list[Chart]:
    """Return the charts of the reports, each with the name of its configuration."""
    is_alone = len(named) == 1
    gpus = max((report.gpus for _, report in named), default=0.0)
    allocated: list[Line] = []
    fragments: list[Line] = []
    waiting: list[Line] = []
    for number, (name, report) in enumerate(named):
        end = "" if is_alone else f", {name}"
        times = tuple(point.at_s / 3600 for point in report.series)
        held = tuple(point.gpus for point in report.series)
        wanted = tuple(point.requested_gpus for point in report.series)
        allocated += [
            Line(f"allocated{end}", times, held, colour=number),
            Line(f"requested{end}", times, wanted, is_dashed=True, colour=number),
        ]
        fragments.append(
            Line(
                f"free, but of no use for the typical pod{end}",
                tuple(point.at_s / 3600 for point in report.fragmentation_series),
                tuple(point.gpus for point in report.fragmentation_series),
                colour=number,
            )
        )
        pods = tuple(float(point.waiting_pods) for point in report.series)
        waiting.append(Line(f"waiting pods{end}", times, pods, colour=number))
    found = [
        _chart("GPUs", "GPUs", allocated, gpus),
        _chart("Fragmentation", "GPUs", fragments),
        _chart("Waiting pods", "pods", waiting),
    ]
    for name, report in named:
        lines = _fairness(report)
        if lines:
            end = "" if is_alone else f", {name}"
            found.append(_chart(f"Queues{end}: held GPUs, and fair shares (dashed)", "GPUs", lines))
    return found


def _fairness(report: Report) -> list[Line]:
    """Return two lines for each of the largest queues; none if there is only one queue."""
    if len(report.fairness) < 2:
        return []
    largest = sorted(report.fairness, key=lambda queue: (-queue.requested, queue.queue))
    times = tuple(point.at_s / 3600 for point in report.series)
    lines = []
    for number, queue in enumerate(largest[:_MOST_QUEUES]):
        held = tuple(point.held.get(queue.queue, 0.0) for point in report.series)
        fair = tuple(point.fair.get(queue.queue, 0.0) for point in report.series)
        lines.append(Line(queue.queue, times, held, colour=number))
        lines.append(Line(f"{queue.queue}, fair", times, fair, is_dashed=True, colour=number))
    return lines


def _chart(title: str, unit: str, lines: Sequence[Line], top: float = 0.0) -> Chart:
    highest = max((value for line in lines for value in line.values), default=0.0)
    return Chart(title, unit, tuple(lines), max(top, highest, 1.0))
