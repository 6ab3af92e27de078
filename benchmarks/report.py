"""`python -m benchmarks.report build/bench.json`: rewrites the table in docs/performance.md.

Run by whoever publishes numbers, after `make bench` on a quiet machine. It replaces what stands
between the two markers and nothing else, and says when and on what machine it was measured.
"""

import datetime as dt
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.results import HEADINGS, Measurement, cells, read

BEGIN: Final = "<!-- measured: begin -->"
END: Final = "<!-- measured: end -->"
_DOCUMENT: Final = Path(__file__).resolve().parents[1] / "docs" / "performance.md"


def rewritten(document: str, measurements: Sequence[Measurement], heading: str) -> str:
    """Return `document` with `heading` and the measurements between its markers.

    Raises:
        ValueError: the markers are not there.
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document lacks {BEGIN} or {END}")
    lines = [_row(HEADINGS), _row(["---", "--:", "---", "--:", "--:", "---"])]
    lines += [_row(cells(measurement)) for measurement in measurements]
    text = "\n".join(lines)
    return f"{before}{BEGIN}\n{heading}\n\n{text}\n{END}{after}"


def machine() -> str:
    """Return what this machine is."""
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{os.cpu_count()} cores, {memory_gib:.0f} GiB of memory"


def main(
    source: Annotated[Path, typer.Argument(help="What `make bench` wrote.")],
    note: Annotated[str, typer.Option(help="A sentence on the circumstances.")] = "",
    document: Annotated[Path, typer.Option(help="The file to rewrite.")] = _DOCUMENT,
) -> None:
    """Put the measurements of SOURCE into docs/performance.md."""
    day = dt.datetime.fromtimestamp(source.stat().st_mtime, dt.UTC).date()
    heading = f"Measured on {day} on {machine()}. {note}".strip()
    text = document.read_text(encoding="utf-8")
    document.write_text(rewritten(text, read(source), heading), encoding="utf-8")


def _row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


if __name__ == "__main__":
    typer.run(main)
