"""The report as tables of text, for the terminal and for the HTML page. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from bindery.simulation.comparison import Comparison
from bindery.simulation.report import Report, WaitingTimes

Named = tuple[str, Report]
"""A report with the name of its configuration."""
_RowsOf = Callable[[Report], Iterable[tuple[str, ...]]]


@dataclass(frozen=True)
class Table:
    """A table of texts; the first column is left-aligned, the others right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(named: Sequence[Named]) -> Iterator[Table]:
    """Yield the tables of `named` reports, side by side where they have the same rows."""
    yield _overview(named)
    for title, group in (("Waiting by queue", "queue"), ("Waiting by size", "size")):
        yield _waiting(title, group, named)
    fairness = tuple(_rows(named, _fairness_rows))
    if fairness:
        columns = ("QUEUE", "HELD", "REQUESTED", "FAIR SHARE", "MISSING")
        yield Table("Queues: GPUs, means over time", _with_name(named, columns), fairness)
    evictions = tuple(_rows(named, _eviction_rows))
    if evictions:
        columns = ("QUEUE", "ACTION", "PODS", "MOVED", "LOST GPU HOURS")
        yield Table("Evictions", _with_name(named, columns), evictions)
    problems = tuple(_rows(named, _problem_rows))
    if problems:
        yield Table("Problems", _with_name(named, ("OBJECT", "WHY")), problems)


def comparison_tables(found: Comparison) -> Iterator[Table]:
    """Yield the tables of a comparison."""
    rows = (
        ("jobs that start at the same time", str(found.same)),
        ("jobs that start earlier", str(found.earlier)),
        ("jobs that start later", str(found.later)),
        ("jobs that start only with the second", str(found.only_second)),
        ("jobs that start only with the first", str(found.only_first)),
        ("pods on other nodes", f"{found.other_nodes} of {found.placed_in_both}"),
        ("more evictions", f"{found.evictions:+}"),
    )
    yield Table("What the second configuration changes", ("", ""), rows)
    if found.changes:
        yield Table(
            "The largest changes",
            ("JOB", "QUEUE", "GPUS", "START", "START, SECOND", "EARLIER"),
            tuple(
                (
                    change.job,
                    change.queue,
                    f"{change.gpus:g}",
                    _start(change.started_s),
                    _start(change.started_against_s),
                    ("-" if change.earlier_s < 0 else "") + duration(abs(change.earlier_s)),
                )
                for change in found.changes
            ),
        )


def duration(seconds: float | None) -> str:
    """Return a time for people: `0.1s`, `45s`, `12m30s`, `5h10m`, `3d4h`."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.3g}s"
    whole = round(seconds)
    for unit, length, lower, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60)):
        if whole >= length:
            return f"{whole // length}{unit}{whole % length // part}{lower}"
    return f"{whole // 60}m{whole % 60}s" if whole >= 60 else f"{whole}s"


def _overview(named: Sequence[Named]) -> Table:
    rows: list[tuple[str, ...]] = []

    def add(name: str, *values: str) -> None:
        rows.append((name, *values))

    reports = [report for _, report in named]
    add("nodes", *(f"{r.nodes:,}" for r in reports))
    add("GPUs", *(f"{r.gpus:,.0f}" for r in reports))
    add("jobs", *(f"{r.jobs:,}" for r in reports))
    add("pods", *(f"{r.pods:,}" for r in reports))
    add("jobs that started", *(f"{r.started_jobs:,}" for r in reports))
    add("jobs that ended", *(f"{r.ended_jobs:,}" for r in reports))
    add("virtual time", *(duration(r.span_s) for r in reports))
    add("cycles", *(f"{r.cycles:,}" for r in reports))
    add("GPU allocation at the end", *(_percent(r.allocation.gpu_at_end) for r in reports))
    add("GPU allocation, mean", *(_percent(r.allocation.gpu_mean) for r in reports))
    add("GPU allocation, peak", *(_percent(r.allocation.gpu_peak) for r in reports))
    add("CPU allocation at the end", *(_percent(r.allocation.cpu_at_end) for r in reports))
    add("CPU allocation, mean", *(_percent(r.allocation.cpu_mean) for r in reports))
    add("fragmentation at the end", *(_percent(r.fragmentation.at_end) for r in reports))
    add("fragmentation, mean", *(_percent(r.fragmentation.mean) for r in reports))
    add("fairness index", *(_number(r.fairness_index) for r in reports))
    add("evicted pods", *(f"{sum(e.pods for e in r.evictions):,}" for r in reports))
    return Table(f"Simulation of {reports[0].trace}", ("", *(name for name, _ in named)), (*rows,))


def _waiting(title: str, group: str, named: Sequence[Named]) -> Table:
    columns = (group.upper(), "JOBS", "STARTED", "MEDIAN", "P95", "LONGEST", "OTHERS SO FAR")

    def rows(report: Report) -> Iterable[tuple[str, ...]]:
        found = report.waiting_by_queue if group == "queue" else report.waiting_by_size
        return (_waiting_row(each) for each in found)

    return Table(title, _with_name(named, columns), tuple(_rows(named, rows)))


def _waiting_row(waiting: WaitingTimes) -> tuple[str, ...]:
    return (
        waiting.group,
        f"{waiting.jobs:,}",
        f"{waiting.started:,}",
        duration(waiting.median_s),
        duration(waiting.p95_s),
        duration(waiting.longest_s),
        duration(waiting.mean_of_others_s),
    )


def _fairness_rows(report: Report) -> Iterator[tuple[str, ...]]:
    for each in report.fairness:
        amounts = (each.held, each.requested, each.fair, each.missing)
        yield (each.queue, *(f"{amount:,.1f}" for amount in amounts))


def _eviction_rows(report: Report) -> Iterator[tuple[str, ...]]:
    for each in report.evictions:
        counts = (str(each.pods), str(each.moved), f"{each.lost_gpu_hours:,.1f}")
        yield (each.queue, each.action, *counts)


def _problem_rows(report: Report) -> Iterator[tuple[str, ...]]:
    yield from report.problems.items()


def _rows(named: Sequence[Named], rows_of: _RowsOf) -> Iterator[tuple[str, ...]]:
    for name, report in named:
        for row in rows_of(report):
            yield row if len(named) == 1 else (row[0], name, *row[1:])


def _with_name(named: Sequence[Named], columns: tuple[str, ...]) -> tuple[str, ...]:
    return columns if len(named) == 1 else (columns[0], "CONFIGURATION", *columns[1:])


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _start(seconds: float | None) -> str:
    return "never" if seconds is None else duration(seconds)
