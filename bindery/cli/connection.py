"""Connects commands to the selected cluster.

`main` stores the global options as a `ClusterChoice`; each command that needs a cluster calls
`with_client`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import typer

import bindery
from bindery.cli.choice import ClusterChoice
from bindery.kube.access.credentials import Credentials, default_namespace

if TYPE_CHECKING:
    from bindery.kube.client import Client

Answer = TypeVar("Answer")

_TIMEOUT_S = 10.0
"""Short, because a person waits for each call."""

_CONNECTIONS = 8
"""Maximum number of concurrent requests; more do not make a server on few cores faster."""


def chosen_namespace(context: typer.Context, given: str | None) -> str:
    """Return the namespace `given` by an option, or the context's namespace, as in kubectl.

    Raises:
        KubeError: no namespace is given, and the configuration cannot be used.
    """
    if given is not None:
        return given
    choice = context.find_object(ClusterChoice) or ClusterChoice()
    return default_namespace(choice.kubeconfig, choice.context)


def lease_namespace(context: typer.Context) -> str:
    """Return the namespace of the Leases of the scheduler, the binder and the grouper."""
    return (context.find_object(ClusterChoice) or ClusterChoice()).lease_namespace


def with_client(context: typer.Context, use: Callable[["Client"], Awaitable[Answer]]) -> Answer:
    """Return the result of `use`, called with a client of the selected cluster.

    Raises:
        KubeError: the cluster does not answer, or refuses.
    """
    choice = context.find_object(ClusterChoice) or ClusterChoice()

    async def connected() -> Answer:
        credentials = await Credentials.load(choice.kubeconfig, choice.context)
        from bindery.kube.client import Client  # not for a user without a cluster

        async with Client.connect(
            credentials=credentials,
            user_agent=f"bindery-cli/{bindery.__version__}",
            request_timeout_s=_TIMEOUT_S,
            connections=_CONNECTIONS,
            is_command=True,
        ) as client:
            return await use(client)

    return asyncio.run(connected())
