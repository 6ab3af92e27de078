"""`bindery whatif`: its options. `rehearsing` gives the answer; the exit code is it in short."""

from pathlib import Path
from typing import Annotated

import typer

from bindery.cli.options import (
    ConfigOption,
    FileOption,
    Format,
    NamespaceOption,
    Origin,
    PoolOption,
    examples,
    namespace_of,
)

app = typer.Typer(no_args_is_help=True, add_completion=False)


_EXAMPLES = examples(
    ("whatif job.yaml", "would it run, where, at whose cost"),
    ("whatif job.yaml -n team -o json", "for programs"),
    ("whatif lower-limit.yaml", "a Queue as it would be"),
    ("whatif job.yaml --file cluster.yaml", "in what snapshot wrote"),
)


@app.command(epilog=_EXAMPLES)
def whatif(
    context: typer.Context,
    manifests: Annotated[
        Path, typer.Argument(metavar="FILE", help="Manifests as for kubectl, or a scenario.")
    ],
    namespace: NamespaceOption = None,
    output: Annotated[Format, typer.Option("-o", "--output")] = Format.TEXT,
    file: FileOption = None,
    config: ConfigOption = None,
    node_pool: PoolOption = None,
) -> None:
    """Say what would happen if FILE were submitted now.

    Which pods go where; who is evicted or moved for it, by which action; who waits instead.

    Or why it waits, and what would help.

    FILE holds PodGroups, pods, Jobs, CronJobs (one run) and their like, queues, priority classes,
    nodes; or a scenario. What another scheduler plans is left out, and named.

    It is played in memory until nothing changes any more; the cluster is only read.

    Ends with 0 if all of it would run, 1 if some of it would wait, 2 if FILE cannot be used
    or nothing in it is planned, 3 if the cluster does not answer, 4 if Bindery itself fails.
    """
    from bindery.cli.rehearsing import answer

    submitted = (manifests, namespace_of(context, namespace, file))
    answer(context, Origin(file, config, node_pool), submitted, output)
