"""`bindery webhook run`: builds the binder's plugins and serves admission reviews until stopped.

Called by the `bindery` command; `bindery.binder.webhook.process` takes over. It reads the binder's
configuration, so that what is checked at admission is what will be done at binding.
"""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from bindery.binder.webhook import process
from bindery.cli.binder import load_plugins
from bindery.cli.listening import HealthPort, ListenAddress, MetricsPort
from bindery.observability import logs
from bindery.observability.listening import LOOPBACK, ListenError, Listening

app = typer.Typer(help="Checks and prepares pods when they are created.", no_args_is_help=True)


@app.callback()
def webhook() -> None:
    """Keep `run` a subcommand although it is the only one."""


@app.command()
def run(
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The binder's configuration; default: all defaults."),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: in-cluster, else the user's own.")
    ] = None,
    listen_address: ListenAddress = LOOPBACK,
    health_port: HealthPort = None,
    metrics_port: MetricsPort = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve /validate and /mutate with certificates that are created and renewed here."""
    configuration, plugins = load_plugins(config)
    logs.configure(process.COMPONENT, log_level)
    listening = Listening(health_port, metrics_port, listen_address)
    options = process.Options(configuration.webhook, plugins, kubeconfig, listening)
    try:
        asyncio.run(process.run(options))
    except ListenError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
