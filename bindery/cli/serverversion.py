"""What `bindery version` says of the cluster: its version, and whether Bindery is installed."""

from typing import Any

from bindery.api.names import API_VERSION
from bindery.kube.client import Client
from bindery.kube.errors import ApiError, NotFoundError
from bindery.kube.objects import KubeObject
from bindery.kube.resources import BIND_REQUESTS, POD_GROUPS, QUEUES, Resource, metadata_only


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


async def describe_server(client: Client) -> list[str]:
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
