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
from bindery.observability import logs

app = typer.Typer(help="Checks and prepares pods when they are created.", no_args_is_help=True)


@app.callback()
def webhook() -> None:
    """Keep `run` a command of its own although it is the only one."""


@app.command()
def run(
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The binder's configuration; default: all defaults."),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: in-cluster, else the user's own.")
    ] = None,
    health_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve /healthz, /readyz, /metrics.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve /validate and /mutate with certificates of its own, and keep these fresh."""
    configuration, plugins = load_plugins(config)
    logs.configure(process.COMPONENT, log_level)
    options = process.Options(configuration.webhook, plugins, kubeconfig, health_port)
    asyncio.run(process.run(options))
