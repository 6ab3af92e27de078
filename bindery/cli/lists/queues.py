"""`bindery queues`: its options. `queuepicture` draws."""

from typing import Annotated

import typer

from bindery.cli.importing import importing
from bindery.cli.options import ConfigOption, FileOption, Origin, PoolOption, WideFormat, examples

app = typer.Typer(add_completion=False)


_EXAMPLES = examples(
    ("queues", "the shares of GPUs"),
    ("queues --resource cpu -o wide", "of cores, with weights and counts"),
    ("queues --watch", "draw again every two seconds"),
    ("queues --file cluster.yaml -o json", "a snapshot, for programs"),
)


@app.command(epilog=_EXAMPLES)
def queues(
    context: typer.Context,
    resource: Annotated[
        str, typer.Option("--resource", help="gpu, cpu, memory, or any other name.")
    ] = "gpu",
    output: Annotated[WideFormat, typer.Option("-o", "--output")] = WideFormat.TEXT,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Draw again until stopped.")] = False,
    file: FileOption = None,
    config: ConfigOption = None,
    node_pool: PoolOption = None,
) -> None:
    """Draw the tree of queues with their shares as bars.

    A bar shows what a queue and those below it hold, and what waits in them.

    Marks show its quota, its fair share and its limit.

    All bars have the same scale: from 0 to the capacity of the cluster.

    A user who may not see the cluster gets a table of the queues of the gangs in the namespace of
    the context.
    """
    with importing():
        from bindery.cli.lists.queuepicture import show

    show(context, Origin(file, config, node_pool), resource, output, watch=watch)
