"""`python -m benchmarks.report build/bench.json`: rewrites the tables in docs/performance/.

Run by whoever publishes numbers, after `make bench` on a quiet machine. It replaces what stands
between four pairs of markers, of single numbers, of races, of the binder alone and of making room,
and draws the picture; what was not measured stays as it is. It says when and on what machine.
"""

import datetime as dt
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks import growth, plot, racetable
from benchmarks.results import HEADINGS, Measurement, at_one_size, cells, read
from benchmarks.room import CASES

NUMBERS: Final = "measured"
RACES: Final = "measured-races"
BINDER: Final = "measured-binder"
ROOM: Final = "measured-room"
PAGES: Final = {
    NUMBERS: "races.md",
    RACES: "races.md",
    BINDER: "components.md",
    ROOM: "cycles.md",
}
"""The page of each section."""
_FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "performance"
_PICTURE: Final = "growth-of-cycles.svg"


def rewritten(document: str, section: str, text: str) -> str:
    """Return `document` with `text` between the markers of `section`.

    Raises:
        ValueError: the markers are not there.
    """
    begin, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    before, found_begin, rest = document.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"the document lacks {begin} or {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def machine() -> str:
    """Return what this machine is."""
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{os.cpu_count()} cores, {memory_gib:.0f} GiB of memory"


def of_numbers(measurements: Sequence[Measurement]) -> str:
    """Return the table of the numbers that belong to no series."""
    return _table([HEADINGS, *(cells(each) for each in measurements)], right={1, 3, 4})


def of_room(measurements: Sequence[Measurement], picture: str) -> str:
    """Return the tables of what was measured at several sizes."""
    published = {case.name: case.published for case in CASES}
    bars = [each for each in measurements if each.baseline is not None]
    headings = (*HEADINGS, "KAI publishes")
    rows = [headings, *((*cells(each), published[each.series]) for each in bars)]
    passed = growth.passed_per_cpu_second(measurements)
    state = "busy: wall seconds are too high" if passed > growth.BUSY else "otherwise idle"
    parts = [
        f"The machine was {state} ({passed:.2f} s passed for every second of CPU).",
        _table(rows, right={1, 3, 4, 6}),
        f"![How a cycle grows]({picture})",
    ]
    for unit, heading in (
        (growth.SECONDS, "seconds, by nodes or queues"),
        (growth.CPU_SECONDS, "CPU seconds"),
        (growth.MEGABYTES, "peak memory, MB"),
    ):
        table = growth.rows(growth.of(measurements, unit), heading)
        parts.append(_table(table, right=set(range(1, len(table[0])))))
    return "\n\n".join(parts)


def main(
    source: Annotated[Path, typer.Argument(help="What `make bench` wrote.")],
    note: Annotated[str, typer.Option(help="A sentence on the circumstances.")] = "",
    folder: Annotated[Path, typer.Option(help="The folder of the pages.")] = _FOLDER,
) -> None:
    """Put the measurements of SOURCE into the pages of docs/performance, and the picture there."""
    day = dt.datetime.fromtimestamp(source.stat().st_mtime, dt.UTC).date()
    heading = f"Measured on {day} on {machine()}. {note}".strip()
    measurements = read(source)
    numbers = at_one_size(measurements)
    sections = {
        NUMBERS: [each for each in numbers if not each.of_binder],
        BINDER: [each for each in numbers if each.of_binder],
    }
    series = [each for each in measurements if each.series]
    races = racetable.rows(measurements)
    texts = {
        section: f"{heading}\n\n{of_numbers(measured)}"
        for section, measured in sections.items()
        if measured
    }
    if len(races) > 1:
        table = _table(races, right=set(range(1, len(races[0]))))
        texts[RACES] = f"{heading}\n\n{table}"
    if series:
        texts[ROOM] = f"{heading} {of_room(series, _PICTURE)}"
        plot.draw(folder / _PICTURE, growth.of(series, growth.SECONDS))
    for section, text in texts.items():
        page = folder / PAGES[section]
        page.write_text(
            rewritten(page.read_text(encoding="utf-8"), section, text), encoding="utf-8"
        )


def _table(rows: Sequence[Sequence[str]], right: set[int]) -> str:
    """Return `rows`, headings first, in Markdown; `right`: the columns of numbers."""
    rule = ["--:" if index in right else "---" for index in range(len(rows[0]))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:]))


if __name__ == "__main__":
    typer.run(main)
