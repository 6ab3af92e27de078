"""The part of `bindery version` about the cluster: its version, the installed kinds, the
leaders.
"""

import asyncio
from typing import Any

from bindery.answers.leaders import confirmed, read_leader
from bindery.api.names import API_VERSION, SCHEDULER_LEASE
from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError
from bindery.kube.objects.resources import BIND_REQUESTS, POD_GROUPS, QUEUES, Resource
from bindery.kube.objects.watched import KubeObject
from bindery.kube.served import served


class ServerVersion(KubeObject, frozen=True, rename="camel", kw_only=True):
    """The response of the API server's `/version`, which is not a Kubernetes object."""

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


async def describe_server(client: Client, lease_namespace: str) -> list[str]:
    """Return lines with the server's version, the served kinds of Bindery, and the leaders."""
    server, state, seen = await asyncio.gather(
        client.get(_VERSION, ""),
        _installation(client),
        read_leader(client, SCHEDULER_LEASE, lease_namespace),
    )
    leader = await confirmed(client, seen)
    lines = [f"server: {server.git_version}", f"resources: {API_VERSION} {state}"]
    lines.append(f"scheduler: {leader.text()}")
    if leader.publication is not None:
        its = leader.publication
        lines[-1] += f"; bindery {its.version}, configuration {its.hash}"
        if its.problem:
            lines.append(f"scheduler: a later change of its file cannot be used: {its.problem}")
    return lines


async def _installation(client: Client) -> str:
    try:
        found = await served(client, _KINDS)
    except ForbiddenError:  # every user may read the version, but not the list of kinds
        return "cannot be seen by this user"
    missing = [kind.plural for kind in _KINDS if kind not in found]
    return f"not installed: {', '.join(missing)}" if missing else "installed"
