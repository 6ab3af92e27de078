"""`bindery grouper`: runs the grouper, and shows its rows and what they make of manifests.

Called by the `bindery` command; `bindery.grouper.process` or `workloads` takes over. A
configuration or a row that cannot be used ends with exit code 2 before anything is done.
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

from bindery.api import yamlfile
from bindery.api.configuration import GrouperConfiguration
from bindery.cli.listening import HealthPort, ListenAddress, MetricsPort
from bindery.cli.options import Format, examples
from bindery.grouper import process
from bindery.grouper.table.loading import Table, load
from bindery.kube.errors import KubeError
from bindery.observability import interpreter, logs
from bindery.observability.listening import LOOPBACK, ListenError, Listening

app = typer.Typer(help="Writes PodGroups for Jobs and other workloads.", no_args_is_help=True)


@app.command(
    epilog=examples(
        ("grouper run --config grouper.yaml", "group the pods of the schedulers that it names"),
        ("grouper run --kubeconfig ~/.kube/config --health-port 0", "on this machine"),
    )
)
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
    """Write PodGroups for workloads whose pods go to Bindery, until stopped."""
    try:
        configuration, table = load_rows(config)
    except yamlfile.FileError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    interpreter.collect_rarely()
    logs.configure(process.COMPONENT, log_level)
    options = process.Options(
        configuration=configuration,
        table=table,
        kubeconfig=kubeconfig,
        identity=identity or f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}",
        listening=Listening(health_port, metrics_port, listen_address),
    )
    try:
        asyncio.run(_until_stopped(process.run(options)))
    except ListenError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    except KubeError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


RowsOption = Annotated[
    list[Path] | None,
    typer.Option("--rows", metavar="FILE", help="A file with rows of yours; may be repeated."),
]


@app.command(
    epilog=examples(
        ("grouper rows", "all kinds, and how each becomes gangs"),
        ("grouper rows --rows mine.yaml -o yaml", "the rows themselves, with those of a file"),
    )
)
def rows(
    row_files: RowsOption = None,
    output: Annotated[Format, typer.Option("-o", "--output")] = Format.TEXT,
) -> None:
    """Show the table of kinds: what is a group, where its minimum comes from, and its stages."""
    from bindery.cli.workloads import show_rows

    show_rows(load(row_files or ()), output)


@app.command(
    epilog=examples(
        ("grouper plan examples/workloads/jobset.yaml", "the PodGroup of a JobSet"),
        ("grouper plan job.yaml --rows mine.yaml", "with a row of yours"),
    )
)
def plan(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...")],
    row_files: RowsOption = None,
) -> None:
    """Print the PodGroups that manifests would become, without a cluster.

    The files have owners such as Jobs, and pods if there are any, also as kubectl get -o yaml
    prints them. For an owner without pods, the pods that its controller makes first are assumed.
    """
    from bindery.cli.workloads import show_plan

    raise typer.Exit(show_plan(files, load(row_files or ())))


@app.command(
    "import-karta",
    epilog=examples(("grouper import-karta karta.yaml > rows.yaml", "rows from Karta objects")),
)
def import_karta(file: Annotated[Path, typer.Argument(metavar="FILE")]) -> None:
    """Print the rows for Karta objects (run.ai/v1alpha1). What has no row is named on stderr."""
    from bindery.cli.workloads import show_imported

    show_imported(file)


def load_rows(path: Path | None) -> tuple[GrouperConfiguration, Table]:
    """Return the configuration at `path`, or the default one, and the table with its row files.

    Raises:
        FileError: they cannot be used; at the line concerned.
    """
    if path is None:
        return GrouperConfiguration(), load()
    configuration = yamlfile.load(GrouperConfiguration, path)
    return configuration, load(path.parent / file for file in configuration.row_files)


async def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run `work`; a signal to stop cancels it, so that it can end cleanly."""
    task = asyncio.ensure_future(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
