"""`bindery grouper`: runs the grouper, and shows its rows and the PodGroups for manifests.

Called by the `bindery` command; `bindery.grouper.process` or `workloads` takes over. A
configuration or a row that cannot be used ends with exit code 2 before anything is done.
"""

from pathlib import Path
from typing import Annotated

import typer

from bindery.api import yamlfile
from bindery.api.configuration import GrouperConfiguration
from bindery.cli.options import Format, LogLevel, RowsOption, examples
from bindery.cli.processes import running
from bindery.grouper import process
from bindery.grouper.table.loading import Table, load
from bindery.observability.listening import LOOPBACK, Listening

app = typer.Typer(help="Writes PodGroups for Jobs and other workloads.", no_args_is_help=True)


@app.command(
    epilog=examples(
        ("grouper run --config grouper.yaml", "group the pods of the schedulers that it names"),
        ("grouper run --kubeconfig ~/.kube/config --health-port 0", "on this machine"),
    )
)
def run(
    config: running.ConfigurationOption = None,
    kubeconfig: running.Kubeconfig = None,
    listen_address: running.ListenAddress = LOOPBACK,
    health_port: running.HealthPort = None,
    metrics_port: running.MetricsPort = None,
    identity: running.Identity = "",
    log_level: LogLevel = "info",
) -> None:
    """Write PodGroups for workloads whose pods go to Bindery, until stopped."""
    configuration, table = load_rows(config)
    running.prepare(process.COMPONENT, log_level)
    options = process.GrouperOptions(
        configuration=configuration,
        table=table,
        kubeconfig=kubeconfig,
        identity=identity or running.new_identity(),
        listening=Listening(health_port, metrics_port, listen_address),
    )
    running.run(running.until_stopped(process.run(options)))


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
    from bindery.cli.processes.workloads import show_rows

    show_rows(load(row_files or ()), output)


@app.command(
    epilog=examples(
        ("grouper plan examples/workloads/jobset.yaml", "the PodGroup of a JobSet"),
        ("grouper plan job.yaml --rows mine.yaml", "with a row of yours"),
    )
)
def plan(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...")], row_files: RowsOption = None
) -> None:
    """Print the PodGroups that manifests would become, without a cluster.

    The files have owners such as Jobs, and pods if there are any, also as kubectl get -o yaml
    prints them. For an owner without pods, the pods that its controller makes first are assumed.
    """
    from bindery.cli.processes.workloads import show_plan

    raise typer.Exit(show_plan(files, load(row_files or ())))


@app.command(
    "import-karta",
    epilog=examples(("grouper import-karta karta.yaml > rows.yaml", "rows from Karta objects")),
)
def import_karta(file: Annotated[Path, typer.Argument(metavar="FILE")]) -> None:
    """Print the rows for Karta objects (run.ai/v1alpha1). What has no row is named on stderr."""
    from bindery.cli.processes.workloads import show_imported

    show_imported(file)


def load_rows(path: Path | None) -> tuple[GrouperConfiguration, Table]:
    """Return the configuration at `path`, or the default one, and the table with its row files.

    Raises:
        FileError: a file cannot be used; contains the line.
    """
    if path is None:
        return GrouperConfiguration(), load()
    configuration = yamlfile.load(GrouperConfiguration, path)
    return configuration, load(path.parent / file for file in configuration.row_files)
