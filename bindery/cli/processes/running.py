"""Options, signals and errors that the commands of all components share.

Used by the commands that run until they are stopped. Errors without a handler here, such as those
of configuration files and of the API server, go to `main`.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from bindery.cli.errors import CommandError, ExitCode
from bindery.observability import interpreter, logs
from bindery.observability.listening import ListenError

ConfigurationOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Configuration; default: all defaults."),
]
Kubeconfig = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Default: in-cluster, else the user's own.")
]
Identity = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Unique name in the Lease; default: host, process and a random number."
    ),
]
ListenAddress = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="Address of probes, metrics and the webhook. Default: this machine only.",
    ),
]
HealthPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Serve /healthz and /readyz, and /metrics unless it has a port; 0: a free port.",
    ),
]
MetricsPort = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Serve /metrics on another port.")
]


def new_identity(separator: str = "_") -> str:
    """Return an identity for the Lease that no other process or later start has."""
    return separator.join([socket.gethostname(), str(os.getpid()), secrets.token_hex(4)])


def prepare(component: str, log_level: str) -> None:
    """Set up logs and garbage collection for a process that holds a cluster in memory."""
    interpreter.collect_rarely()
    logs.configure(component, log_level)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` to its end.

    Raises:
        CommandError: an address cannot be listened on.
    """
    try:
        asyncio.run(work)
    except ListenError as error:
        raise CommandError(str(error), ExitCode.BAD_INPUT) from error


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run `work`; SIGTERM and SIGINT cancel it, so that it can end cleanly."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def stop_event() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set, for work that ends in an order of its own."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def unless_stopped(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Run `work` until it ends or `stop` is set, which cancels it; return whether it has ended."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
        return tasks[0].done()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
