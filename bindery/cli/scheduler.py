"""`bindery scheduler`: runs the scheduler process."""

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

from bindery.api.yamlfile import FileError
from bindery.cli.listening import HealthPort, ListenAddress, MetricsPort
from bindery.observability import interpreter, logs
from bindery.observability.listening import LOOPBACK, ListenError, Listening
from bindery.scheduler import process
from bindery.scheduler.background import CycleHangsError
from bindery.scheduler.configuration import ConfigurationFile
from bindery.scheduler.process import Options

app = typer.Typer(no_args_is_help=True, help="The process that plans gangs and commits them.")


@app.callback()
def _group() -> None:
    """Keep `run` a subcommand, so that others can stand beside it."""


@app.command()
def run(
    config: Annotated[
        Path | None, typer.Option(help="SchedulerConfiguration file; reread when it changes.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Default: the cluster it runs in, else your kubeconfig.")
    ] = None,
    listen_address: ListenAddress = LOOPBACK,
    health_port: HealthPort = 8080,
    metrics_port: MetricsPort = None,
    identity: Annotated[
        str, typer.Option(help="Name in the Lease; must be unique. Default: host and a number.")
    ] = "",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Plan gangs until stopped (SIGTERM, SIGINT).

    Examples:
        bindery scheduler run --config scheduler.yaml

        bindery scheduler run --kubeconfig ~/.kube/config --health-port 0
    """
    interpreter.collect_rarely()
    logs.configure("scheduler", log_level)
    try:
        configuration_file = ConfigurationFile(config)
    except FileError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    options = Options(
        configuration_file=configuration_file,
        kubeconfig=kubeconfig,
        identity=identity or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
        listening=Listening(health_port, metrics_port, listen_address),
    )
    try:
        asyncio.run(_until_stopped(process.run(options)))
    except ListenError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    except BaseExceptionGroup as group:
        hangs = group.subgroup(CycleHangsError)
        if hangs is None:
            raise
        typer.echo(f"{_first(hangs)}; see the log", err=True)
        raise typer.Exit(1) from group


def _first(group: BaseExceptionGroup[CycleHangsError]) -> BaseException:
    """Return the first error of `group`, however deep it is."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run `work`; a signal to stop cancels it, so that it can end cleanly."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
