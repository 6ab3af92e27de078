"""`bindery scheduler`: runs the scheduler process."""

from pathlib import Path
from typing import Annotated

import typer

from bindery.cli.options import LogLevel, command_group
from bindery.cli.processes import running
from bindery.observability.listening import LOOPBACK, Listening
from bindery.scheduler import process
from bindery.scheduler.configuration import ConfigurationFile
from bindery.scheduler.cycles import CycleHangsError
from bindery.scheduler.process import SchedulerOptions

app = command_group("The process that plans gangs and commits them.")


@app.command()
def run(
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="SchedulerConfiguration file; reread when it changes."),
    ] = None,
    kubeconfig: running.Kubeconfig = None,
    listen_address: running.ListenAddress = LOOPBACK,
    health_port: running.HealthPort = 8080,
    metrics_port: running.MetricsPort = None,
    identity: running.Identity = "",
    log_level: LogLevel = "info",
) -> None:
    """Plan gangs until stopped (SIGTERM, SIGINT).

    Examples:
        bindery scheduler run --config scheduler.yaml

        bindery scheduler run --kubeconfig ~/.kube/config --health-port 0
    """
    configuration_file = ConfigurationFile(config)
    running.prepare(process.COMPONENT, log_level)
    options = SchedulerOptions(
        configuration_file=configuration_file,
        kubeconfig=kubeconfig,
        identity=identity or running.new_identity(separator="-"),
        listening=Listening(health_port, metrics_port, listen_address),
    )
    try:
        running.run(running.until_stopped(process.run(options)))
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
