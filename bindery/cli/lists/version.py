"""`bindery version`: the versions of this command and, if it answers, of the cluster.

A cluster that does not answer is not an error, because the command's own version is the main
answer.
"""

from typing import Annotated, Any

import typer

import bindery

app = typer.Typer(add_completion=False)


@app.command(epilog="Example: bindery version --client")
def version(
    context: typer.Context,
    client: Annotated[bool, typer.Option("--client", help="Do not ask the cluster.")] = False,
) -> None:
    """Show the versions of this command and, if a cluster answers, of the cluster."""
    typer.echo(f"client: {bindery.__version__}")
    if client:
        return
    from bindery.cli.connection import lease_namespace, with_client
    from bindery.kube.errors import KubeError

    try:
        namespace = lease_namespace(context)
        lines = with_client(context, lambda client: _describe_server(client, namespace))
    except KubeError as error:
        lines = [f"server: does not answer ({error})"]
    for line in lines:
        typer.echo(line)


async def _describe_server(client: Any, namespace: str) -> list[str]:
    from bindery.cli.lists.serverversion import describe_server

    return await describe_server(client, namespace)
