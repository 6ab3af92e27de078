"""Show `bindery queues`: the quota, fair share, held and requested amount of each queue.

`bindery.answers` computes the shares, `queuetree` draws them.
"""

import os
import time

import typer
from rich.console import Console, Group
from rich.live import Live

from bindery.answers.amounts import short
from bindery.answers.shares import shares_of
from bindery.answers.source import Source
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.lists.ownqueues import show_own
from bindery.cli.lists.queuetree import ASCII, UNICODE, View, draw
from bindery.cli.options import Origin, WideFormat
from bindery.cli.reading.sources import read_source
from bindery.cli.tables import print_lines
from bindery.cli.text.documents import dump
from bindery.kube.errors import ForbiddenError
from bindery.scheduler.insight.shares import ClusterShares

_PIPE_WIDTH = 100
"""Columns if the output is not a terminal and $COLUMNS is not set."""
_EVERY_S = 2.0
"""Seconds between two reads with --watch."""


def show(
    context: typer.Context, origin: Origin, resource: str, output: WideFormat, *, watch: bool
) -> None:
    """Print the queues once, or repeatedly until the user interrupts."""
    if watch:
        _watch(context, origin, resource, output)
        return
    try:
        shares, source = _look(context, origin)
    except ForbiddenError as error:
        show_own(context, resource, output, error)
        return
    if output in (WideFormat.JSON, WideFormat.YAML):
        typer.echo(dump(source.described(shares), output), nl=False)
        return
    console = _console()
    console.print(_drawing(shares, console, resource, output))
    print_lines(source.lines)


def _watch(context: typer.Context, origin: Origin, resource: str, output: WideFormat) -> None:
    """Draw, wait and draw again until the user interrupts."""
    if output in (WideFormat.JSON, WideFormat.YAML):
        raise CommandError(f"--watch cannot be used with -o {output}", ExitCode.BAD_INPUT)
    console = _console()
    try:
        with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
            while True:
                shares, _ = _look(context, origin)
                drawing = _drawing(shares, console, resource, output)
                if console.is_terminal:
                    live.update(drawing, refresh=True)
                else:
                    console.print(drawing)
                time.sleep(_EVERY_S)
    except KeyboardInterrupt:
        return


def _look(context: typer.Context, origin: Origin) -> tuple[ClusterShares, Source]:
    source = read_source(context, origin)
    return shares_of(source), source


def _drawing(shares: ClusterShares, console: Console, resource: str, output: WideFormat) -> Group:
    """Return the tree as wide as `console`.

    Raises:
        CommandError: no node and no queue has the resource.
    """
    name = short(resource)
    known = set(shares.total).union(*(queue.resources for queue in shares.queues))
    if name not in known:
        names = ", ".join(sorted(known)) or "none, as there are no nodes and no queues"
        text = f"no queue and no node has {resource}; known: {names}"
        raise CommandError(text, ExitCode.BAD_INPUT)
    marks = ASCII if console.options.ascii_only else UNICODE
    view = View(name, console.width, wide=output is WideFormat.WIDE, marks=marks)
    return Group(*draw(shares, view))


def _console() -> Console:
    console = Console(highlight=False)
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(highlight=False, width=_PIPE_WIDTH)
