"""`bindery explain`: its options. `answer` reads the cluster and prints."""

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
    ("explain train", "why a gang waits: the name of a PodGroup, a pod or a workload"),
    ("explain pod/worker-3 -n team", "a pod, with its gang"),
    ("explain job/train", "the gang of a workload; so rayjob/, deploy/, sts/"),
    ("explain br/my-gang-1", "a BindRequest, and the first of its gangs that waits"),
    ("explain queue/research", "a queue and the jobs that wait in it"),
    ("explain train -o json", "for programs"),
    ("explain train --file cluster.yaml", "a snapshot"),
)


@app.command(epilog=_EXAMPLES)
def explain(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="[KIND/]NAME",
            help="A PodGroup, pod or workload; KIND: pg, pod, queue, br, job, rayjob, and so on.",
        ),
    ],
    namespace: NamespaceOption = None,
    output: Annotated[Format, typer.Option("-o", "--output")] = Format.TEXT,
    file: FileOption = None,
    config: ConfigOption = None,
    node_pool: PoolOption = None,
) -> None:
    """Explain why a gang, a pod or the jobs of a queue wait, and what would help.

    Shows which nodes do not fit and why, the shares of the queue, and the position in the order.

    Shows which evictions would make room, and which rule or disruption budget forbids them.

    The scheduler's own engine plans in memory: nothing is changed.
    """
    with importing():
        from bindery.cli.explain.answer import answer

    about = (name, namespace_of(context, namespace, file))
    answer(context, Origin(file, config, node_pool), about, output)
