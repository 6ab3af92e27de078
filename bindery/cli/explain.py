"""`bindery explain`: its options. `explanation` gives the answer."""

from typing import Annotated

import typer

from bindery.cli.options import ConfigOption, FileOption, Format, Origin

app = typer.Typer(no_args_is_help=True)


@app.command(
    epilog="Examples: bindery explain my-gang · bindery explain pod/worker-3 -n team · "
    "bindery explain my-gang -o json · bindery explain a --file cluster.yaml"
)
def explain(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="POD|PODGROUP", help="NAME, pod/NAME or pg/NAME.")],
    namespace: Annotated[str, typer.Option("-n", "--namespace")] = "default",
    output: Annotated[Format, typer.Option("-o", "--output")] = Format.TEXT,
    file: FileOption = None,
    config: ConfigOption = None,
) -> None:
    """Say which gate holds a pod or a gang, and what would help.

    Which nodes are against it and why; what its queue is granted and holds; whose turn it is.

    Whose going would make room, and which rule forbids that.

    All is planned in memory with the scheduler's own engine: nothing is changed.
    """
    from bindery.cli.explanation import answer

    answer(context, Origin(file, config), (name, namespace), output)
