"""`bindery whatif`: its options. `rehearsing` gives the answer; the exit code is it in short."""

from pathlib import Path
from typing import Annotated

import typer

from bindery.cli.options import ConfigOption, FileOption, Format, Origin, PoolOption

app = typer.Typer(no_args_is_help=True)


@app.command(
    epilog="Examples: bindery whatif job.yaml · bindery whatif job.yaml -n team -o json · "
    "bindery whatif job.yaml --file snapshot.yaml · bindery whatif more-quota.yaml"
)
def whatif(
    context: typer.Context,
    manifests: Annotated[
        Path, typer.Argument(metavar="FILE", help="Manifests as for kubectl, or a scenario.")
    ],
    namespace: Annotated[str, typer.Option("-n", "--namespace")] = "default",
    output: Annotated[Format, typer.Option("-o", "--output")] = Format.TEXT,
    file: FileOption = None,
    config: ConfigOption = None,
    node_pool: PoolOption = None,
) -> None:
    """Say what would happen if FILE were submitted now.

    Which pods go where; who is evicted or moved for it, by which action; who waits instead.

    Or why it waits, and what would help.

    FILE holds PodGroups, pods, Jobs and their like, queues, priority classes, nodes; or a scenario.

    It is played in memory until nothing changes any more; the cluster is only read.

    Ends with 0 if all of it would run, 1 if some of it would wait, 2 if FILE cannot be used,
    3 if the cluster does not answer, 4 if Bindery itself fails.
    """
    from bindery.cli.rehearsing import answer

    answer(context, Origin(file, config, node_pool), (manifests, namespace), output)
