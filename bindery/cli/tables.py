"""Prints rows as a table, as JSON or as YAML, from one description of the columns.

Used by all commands that read. A row is a mapping by column key; the table formats its values, `-o
json` and `-o yaml` print them unchanged.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bindery.answers.rows import Row
from bindery.api.shown import shown

_MOST_LINE = 8192
"""Maximum length of a line of text for people."""
_PIPE_WIDTH = 1000
"""Columns if the output is not a terminal, so that lines for programs are not folded."""


@dataclass(frozen=True)
class Column:
    """One column: heading, key in a row, and format of its value."""

    heading: str
    key: str
    write: Callable[[object], str] = str
    is_number: bool = False


def print_table(
    columns: Sequence[Column], rows: Sequence[Row], nothing: str, *, to_stderr: bool = False
) -> None:
    """Print `rows` below their headings, or `nothing` when there are none."""
    console = make_console(to_stderr=to_stderr)
    if not rows:
        console.print(Text(nothing))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in columns:
        is_last = column is columns[-1]
        table.add_column(
            column.heading,
            justify="right" if column.is_number else "left",
            no_wrap=not is_last,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(shown(column.write(row[column.key]))) for column in columns))
    console.print(table)


def print_lines(lines: Iterable[str]) -> None:
    """Print `lines`; lines that exceed the terminal continue at their own indent."""
    console = make_console()
    for written in lines:
        line = shown(written, _MOST_LINE, keep="\n")
        text = line.lstrip(" ")
        if console.is_terminal:
            console.print(Padding(Text(text), (0, 0, 0, len(line) - len(text))))
        else:
            console.print(Text(line))


def print_list(rows: Sequence[Row], form: str) -> bool:
    """Print `rows` as one list if `form` is json or yaml; return False for other forms."""
    wire = [dict(row) for row in rows]
    if form == "json":
        text = json.dumps(wire, indent=2) + "\n"
    elif form == "yaml":
        import yaml  # tables do not need it

        text = yaml.safe_dump(wire, sort_keys=False, width=_PIPE_WIDTH)
    else:
        return False
    make_console().file.write(text)
    return True


def working(text: str) -> AbstractContextManager[object]:
    """Show `text` as progress on stderr if it is a terminal."""
    console = Console(stderr=True, highlight=False)
    return console.status(f"{text} …") if console.is_terminal else nullcontext()


def make_console(*, to_stderr: bool = False) -> Console:
    """Return a console that folds lines only on a terminal."""
    console = Console(highlight=False, stderr=to_stderr)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PIPE_WIDTH, stderr=to_stderr)
    return console
