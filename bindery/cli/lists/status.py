"""`bindery status`: its options. `componenttable` prints what `bindery.answers` reads."""

from typing import Annotated

import typer

from bindery.cli.importing import importing
from bindery.cli.options import Format, examples

app = typer.Typer(add_completion=False)

_EXAMPLES = examples(
    ("status", "who leads, and which configuration is in use"),
    ("status -o yaml", "with the values that differ from the defaults"),
)


@app.command(epilog=_EXAMPLES)
def status(
    context: typer.Context, output: Annotated[Format, typer.Option("-o", "--output")] = Format.TEXT
) -> None:
    """Show whether the scheduler, the binder, the grouper and the webhook work.

    Shows who leads, for how long, the age of the Leases, and the configuration in use.

    The webhook is tested by a Queue that it must warn of, as a dry run: nothing is created. That
    needs the permission to create Queues; without it, the state of the webhook is `unknown`.

    Exit code: 0 if each installed component works, 1 if not, 3 if the cluster does not answer.
    """
    with importing():
        from bindery.answers.components import read_components
        from bindery.cli.connection import lease_namespace, with_client
        from bindery.cli.errors import ExitCode
        from bindery.cli.lists.componenttable import show

    namespace = lease_namespace(context)
    found = with_client(context, lambda client: read_components(client, namespace))
    show(found, output)
    if not all(each.works for each in found):
        raise typer.Exit(ExitCode.FAILURE)
