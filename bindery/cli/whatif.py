"""`bindery whatif`: its options. `rehearsing` gives the answer; the exit code sums it up."""

from pathlib import Path
from typing import Annotated

import typer

from bindery.cli.importing import importing
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
    ("whatif job.yaml", "would it run, where, and what is evicted for it"),
    ("whatif job.yaml -n team -o json", "for programs"),
    ("whatif lower-limit.yaml", "with a changed Queue"),
    ("whatif job.yaml --file cluster.yaml", "a snapshot"),
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
    """Show what would happen if FILE were submitted now.

    Shows the node of each pod, and which pods are evicted or moved by which action.

    Or shows why FILE waits, and what would help.

    FILE has manifests or a scenario: PodGroups, pods, Jobs, CronJobs (one run) and other workloads,
    queues, priority classes, nodes. Pods of other schedulers are left out and named.

    Cycles run in memory until nothing changes any more; the cluster is only read.

    Exit code: 0 if all of it would run, 1 if some of it would wait, 2 if FILE cannot be used
    or has nothing to schedule, 3 if the cluster does not answer, 4 if Bindery itself fails.
    """
    with importing():
        from bindery.cli.rehearsing import answer

    submitted = (manifests, namespace_of(context, namespace, file))
    answer(context, Origin(file, config, node_pool), submitted, output)
