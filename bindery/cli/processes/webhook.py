"""`bindery webhook run`: builds the binder's plugins and serves admission reviews until stopped.

Called by the `bindery` command; `bindery.binder.webhook.process` takes over. It reads the binder's
configuration, so that admission checks the same plugins as the binder runs.
"""

from pathlib import Path
from typing import Annotated

import typer

from bindery.binder.plugins import registry
from bindery.binder.webhook import process
from bindery.cli.options import LogLevel, command_group
from bindery.cli.processes import running
from bindery.observability import logs
from bindery.observability.listening import LOOPBACK, Listening

app = command_group("Checks and prepares pods when they are created.")


@app.command()
def run(
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The binder's configuration; default: all defaults."),
    ] = None,
    kubeconfig: running.Kubeconfig = None,
    listen_address: running.ListenAddress = LOOPBACK,
    health_port: running.HealthPort = None,
    metrics_port: running.MetricsPort = None,
    log_level: LogLevel = "info",
) -> None:
    """Serve /validate and /mutate with certificates that are created and renewed here."""
    configuration, plugins = registry.load(config)
    logs.configure(process.COMPONENT, log_level)
    listening = Listening(health_port, metrics_port, listen_address)
    options = process.WebhookOptions(configuration.webhook, plugins, kubeconfig, listening)
    running.run(process.run(options))
