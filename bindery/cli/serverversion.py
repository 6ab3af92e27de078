"""`bindery version`: this command's version and, where a cluster answers, what it runs.

Called through `lazy`; `connection` connects. A cluster that does not answer is no failure here: the
command's own version is what was asked for first.
"""

from typing import Annotated, Any

import typer

from bindery import __version__
from bindery.api.names import API_VERSION
from bindery.cli.connection import with_client
from bindery.kube.client import Client
from bindery.kube.errors import ApiError, KubeError, NotFoundError
from bindery.kube.objects import KubeObject
from bindery.kube.resources import BIND_REQUESTS, POD_GROUPS, QUEUES, Resource, metadata_only

app = typer.Typer()


class ServerVersion(KubeObject, frozen=True, rename="camel", kw_only=True):
    """The answer of the API server's `/version`, which is no Kubernetes object."""

    git_version: str = ""


class _VersionEndpoint(Resource[ServerVersion]):
    """`/version`: the one path that is not built from group, version and plural."""

    def path(
        self,
        namespace: str = "",  # noqa: ARG002
        name: str = "",  # noqa: ARG002
        subresource: str = "",  # noqa: ARG002
    ) -> str:
        return "/version"


_KINDS: tuple[Resource[Any], ...] = (POD_GROUPS, QUEUES, BIND_REQUESTS)
_VERSION = _VersionEndpoint("", "", "version", "Version", False, ServerVersion)


@app.command(epilog="Example: bindery version --client")
def version(
    context: typer.Context,
    client: Annotated[bool, typer.Option("--client", help="Ask no cluster.")] = False,
) -> None:
    """Show the versions of this command and, if a cluster answers, of the cluster."""
    typer.echo(f"client: {__version__}")
    if client:
        return
    try:
        lines = with_client(context, _describe_server)
    except KubeError as error:
        lines = [f"server: does not answer ({error})"]
    for line in lines:
        typer.echo(line)


async def _describe_server(client: Client) -> list[str]:
    """Return lines with the server's version and which of Bindery's kinds it serves."""
    server = await client.get(_VERSION, "")
    missing = []
    for resource in map(metadata_only, _KINDS):
        try:
            await client.list(resource)
        except NotFoundError:
            missing.append(resource.plural)
        except ApiError:  # it may not be listed by us, so it is served
            continue
    state = f"not installed: {', '.join(missing)}" if missing else "installed"
    return [f"server: {server.git_version}", f"resources: {API_VERSION} {state}"]
