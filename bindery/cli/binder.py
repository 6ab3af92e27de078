"""`bindery binder run`: reads the configuration, builds the plugins and runs until it is stopped.

Called by the `bindery` command; `bindery.binder.process` takes over. A configuration that cannot be
used ends with exit code 2 before anything is done.
"""

import asyncio
import os
import secrets
import socket
from pathlib import Path
from typing import Annotated

import typer

from bindery.api import yamlfile
from bindery.api.configuration import BinderConfiguration
from bindery.api.plugins import PluginConfigurationError
from bindery.binder import process
from bindery.binder.plugins import registry
from bindery.binder.plugins.interface import BinderPlugin
from bindery.cli.listening import HealthPort, ListenAddress, MetricsPort
from bindery.kube.errors import KubeError
from bindery.observability import interpreter, logs
from bindery.observability.listening import LOOPBACK, ListenError, Listening

app = typer.Typer(help="Carries out the scheduler's decisions.", no_args_is_help=True)


@app.callback()
def binder() -> None:
    """Keep `run` a subcommand although it is the only one."""


@app.command()
def run(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Configuration; default: all defaults.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: in-cluster, else the user's own.")
    ] = None,
    listen_address: ListenAddress = LOOPBACK,
    health_port: HealthPort = None,
    metrics_port: MetricsPort = None,
    identity: Annotated[
        str, typer.Option(metavar="NAME", help="For the Lease; default: host and process.")
    ] = "",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Carry out BindRequests: bind all pods of a gang, or none."""
    try:
        configuration, plugins = load_plugins(config)
    except yamlfile.FileError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    interpreter.collect_rarely()
    logs.configure(process.COMPONENT, log_level)
    options = process.Options(
        configuration=configuration,
        plugins=plugins,
        kubeconfig=kubeconfig,
        identity=identity or f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}",
        listening=Listening(health_port, metrics_port, listen_address),
    )
    try:
        asyncio.run(process.run(options))
    except ListenError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    except KubeError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


def load_plugins(path: Path | None) -> tuple[BinderConfiguration, tuple[BinderPlugin, ...]]:
    """Return the configuration at `path`, or the default one, and its plugins.

    Raises:
        FileError: they cannot be used; at the line concerned.
    """
    if path is None:
        configuration = BinderConfiguration()
        return configuration, registry.build(configuration.plugins)
    configuration = yamlfile.load(BinderConfiguration, path)
    try:
        return configuration, registry.build(configuration.plugins)
    except PluginConfigurationError as error:
        document = yamlfile.read(path)[0]
        raise document.error(error.location, error.message) from error
