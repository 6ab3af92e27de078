"""Answer `bindery simulate`: read the trace, play it, write the report.

`bindery.simulation` does the work. Progress goes to standard error, the report to standard output
and to the requested files.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.plugins import PluginConfigurationError
from bindery.api.yamlfile import load as load_file
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.options import Format
from bindery.cli.tables import Column, print_lines, print_table
from bindery.cli.text.documents import dump
from bindery.scheduler.actions.registry import UnknownActionError
from bindery.simulation.comparison import Comparison, compare
from bindery.simulation.load import compressed, packed
from bindery.simulation.manifests import read_manifests, read_snapshot
from bindery.simulation.openb import is_openb, read_trace
from bindery.simulation.page import make_page
from bindery.simulation.player import Settings, play
from bindery.simulation.record import Record
from bindery.simulation.report import Report, make_report
from bindery.simulation.tables import Table, comparison_tables, tables
from bindery.simulation.trace import Trace, TraceError

_PACKING_WINDOW_S: Final = 100.0
"""With --arrivals-only a job arrives each second; a cycle starts after this time."""
_PACKING_ACTIONS: Final = frozenset({"allocate", "backfill"})
"""With --arrivals-only, no pod is moved or evicted."""


@dataclass(frozen=True)
class Choice:
    """The input of a simulation."""

    trace: Path
    configurations: tuple[Path | None, Path | None]
    """The first and the second configuration; None: the default, and none."""
    node_pool: str | None
    load: float | None
    is_packing: bool
    seed: int
    settings: Settings


@dataclass(frozen=True)
class Outputs:
    """The outputs of the report."""

    form: Format
    html: Path | None
    png: Path | None


def answer(choice: Choice, outputs: Outputs) -> None:
    """Play the trace under one or two configurations and write the report.

    Raises:
        FileError: a file cannot be used.
        CommandError: the trace or a configuration cannot be used, or a file cannot be written.
    """
    if outputs.png is not None:
        _demand_matplotlib()
    try:
        trace, default = _read(choice)
    except TraceError as error:
        raise CommandError(str(error), ExitCode.BAD_INPUT) from error
    named: list[tuple[str, Record]] = []
    for name, configuration in _configurations(choice, default):
        named.append((name, _play(trace, configuration, choice, name)))
    reports = [(name, make_report(record)) for name, record in named]
    comparison = compare(named[0][1], named[1][1]) if len(named) > 1 else None
    _notify(trace)
    _write(reports, comparison, outputs)


def _read(choice: Choice) -> tuple[Trace, SchedulerConfiguration]:
    """Return the trace with its load changed, and its configuration."""
    path, default = choice.trace, SchedulerConfiguration()
    if is_openb(path):
        trace = read_trace(path)
    elif path.is_dir():
        trace = read_manifests(path)
    else:
        trace, scenario = read_snapshot(path)
        default = scenario.config.to_configuration()
    if choice.is_packing:
        return packed(trace, choice.load, choice.seed), default
    if choice.load is not None:
        return compressed(trace, choice.load, choice.seed), default
    return trace, default


def _configurations(
    choice: Choice, default: SchedulerConfiguration
) -> Iterator[tuple[str, SchedulerConfiguration]]:
    """Yield the configurations with their names.

    Raises:
        FileError: a file cannot be used.
    """
    first, second = choice.configurations
    found = [(first.stem if first else "default", first)]
    if second is not None:
        name = second.stem if second.stem != found[0][0] else f"{second.stem} (second)"
        found.append((name, second))
    for name, path in found:
        configuration = default if path is None else load_file(SchedulerConfiguration, path)
        if choice.node_pool is not None:
            configuration = configuration.model_copy(update={"node_pool": choice.node_pool})
        if choice.is_packing:
            kept = tuple(name for name in configuration.actions if name in _PACKING_ACTIONS)
            configuration = configuration.model_copy(update={"actions": kept})
        yield name, configuration


def _play(trace: Trace, configuration: SchedulerConfiguration, choice: Choice, name: str) -> Record:
    settings = choice.settings
    if choice.is_packing and settings.window_s is None:
        settings = replace(settings, window_s=_PACKING_WINDOW_S)
    try:
        with _progress(name, len(trace.arrivals)) as progress:
            return play(trace, configuration, settings, progress)
    except (UnknownActionError, PluginConfigurationError) as error:
        raise CommandError(f"the configuration {name}: {error}", ExitCode.BAD_INPUT) from error


@contextmanager
def _progress(name: str, arrivals: int) -> Iterator[Callable[[int, float], None]]:
    """Show a progress bar on standard error if it is a terminal."""
    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs, {task.fields[hours]:,.1f} h"),
        TimeElapsedColumn(),
    )
    bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
    with bar:
        task = bar.add_task(name, total=arrivals, hours=0.0)

        def show(arrived: int, now_s: float) -> None:
            bar.update(task, completed=arrived, hours=now_s / 3600)

        yield show


def _notify(trace: Trace) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for name, why in trace.passed_over.items():
        console.print(f"{name} is ignored: {why}", markup=False)


def _write(
    reports: Sequence[tuple[str, Report]], comparison: Comparison | None, outputs: Outputs
) -> None:
    """Write the reports to all outputs."""
    further = list(comparison_tables(comparison)) if comparison is not None else []
    if outputs.form is Format.TEXT:
        _print([*tables(reports), *further])
    else:
        wire: dict[str, object] = {"reports": dict(reports)}
        if comparison is not None:
            wire["comparison"] = comparison
        typer.echo(dump(wire, outputs.form), nl=False)
    try:
        if outputs.html is not None:
            title = f"Simulation of {reports[0][1].trace}"
            outputs.html.write_text(make_page(title, reports, further), encoding="utf-8")
        if outputs.png is not None:
            from bindery.simulation.picture import draw

            draw(outputs.png, reports)
    except OSError as error:
        raise CommandError(f"{error.filename} cannot be written: {error.strerror}") from error


def _print(found: Sequence[Table]) -> None:
    for number, table in enumerate(found):
        print_lines(["", table.title] if number else [table.title])
        columns = [
            Column(heading, str(at), is_number=at > 0) for at, heading in enumerate(table.columns)
        ]
        rows = [{str(at): value for at, value in enumerate(row)} for row in table.rows]
        print_table(columns, rows, "nothing")


def _demand_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401, ICN001
    except ImportError as error:
        text = "--png needs matplotlib: pip install 'bindery[bench]'; --html works without it"
        raise CommandError(text, ExitCode.BAD_INPUT) from error
