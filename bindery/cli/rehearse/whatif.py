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
    RowsOption,
    examples,
    namespace_of,
)

app = typer.Typer(no_args_is_help=True, add_completion=False)


_EXAMPLES = examples(
    ("whatif job.yaml", "would it run, where, and what is evicted for it"),
    ("whatif job.yaml -n team -o json", "for programs"),
    ("whatif -f queues/ -f job.yaml", "a folder and a file together"),
    ("whatif - < job.yaml", "from stdin"),
    ("whatif queue.yaml", "with a changed Queue: the gangs and queues that it affects"),
    ("whatif job.yaml --file cluster.yaml", "in a snapshot"),
)


@app.command(epilog=_EXAMPLES)
def whatif(  # noqa: PLR0913, PLR0917 -- every option of the command line is one
    context: typer.Context,
    manifests: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", show_default=False, help="Manifests as for kubectl."),
    ] = None,
    filename: Annotated[
        list[Path] | None,
        typer.Option("-f", "--filename", metavar="FILE", help="The same, as kubectl has it."),
    ] = None,
    recursive: Annotated[
        bool, typer.Option("-R", "--recursive", help="Also the folders below a folder.")
    ] = False,
    namespace: NamespaceOption = None,
    output: Annotated[Format, typer.Option("-o", "--output")] = Format.TEXT,
    file: FileOption = None,
    config: ConfigOption = None,
    node_pool: PoolOption = None,
    row_files: RowsOption = None,
) -> None:
    """Show what would happen if FILE were submitted now.

    Shows the node of each pod, and which pods are evicted or moved by which action.

    Or shows why FILE waits, and what would help.

    FILE is a file, a folder, or - for stdin, with manifests or a scenario: workloads of all kinds
    that `bindery grouper rows` lists, pods, PodGroups, queues, priority classes, namespaces, nodes.
    Pods of other schedulers are left out and named.

    Cycles run in memory until nothing changes any more; the cluster is only read.

    Exit code: 0 if all of it would run, 1 if some of it would wait, 2 if FILE cannot be used,
    has nothing to schedule or names a namespace that does not exist, 3 if the cluster does not
    answer, 4 if Bindery itself fails.
    """
    with importing():
        from bindery.cli.rehearse.rehearsing import Question, answer

    files = (*(manifests or ()), *(filename or ()))
    if not files:
        raise typer.BadParameter("a FILE is needed; - reads from stdin", param_hint="FILE")
    question = Question(
        files, namespace_of(context, namespace, file), tuple(row_files or ()), recursive=recursive
    )
    answer(context, Origin(file, config, node_pool), question, output)
