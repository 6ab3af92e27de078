"""The administrator of the tests' cluster, for what is not asynchronous: fixtures, and plain tests.

It does by the project's own client what a kubectl would, which costs some seven times as much to
start.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from bindery.kube.client import Client
from bindery.kube.errors import AlreadyExistsError, NotFoundError
from bindery.kube.objects.resources import BIND_REQUESTS, NAMESPACES, Resource, metadata_only
from bindery.kube.objects.watched import KubeObject

T = TypeVar("T")
K = TypeVar("K", bound=KubeObject)


class Plain(KubeObject, frozen=True, rename="camel", kw_only=True):
    """Any object, as it is in JSON."""

    spec: Any = None
    status: Any = None
    message: str = ""


SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, Plain)


def read_as(resource: Resource[Any], kind: type[K]) -> Resource[K]:
    """Return `resource` with objects that are decoded to `kind`."""
    found: Resource[K] = replace(resource, type=kind)
    return found


class Administrator:
    """Runs work with a client; a new one each time, as the API server may have been restarted."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def __call__(self, work: Callable[[Client], Awaitable[T]]) -> T:
        async def run() -> T:
            async with Client.connect(self._kubeconfig, user_agent="bindery-test/0") as client:
                return await work(client)

        return asyncio.run(run())

    @contextmanager
    def fresh_namespace(self) -> Iterator[str]:
        """Create a namespace in which pods can be created, and delete it in the end.

        Its BindRequests go first: the namespace takes its time to go, and the next test's binder
        would carry them out and count them.
        """
        name = f"test-{secrets.token_hex(4)}"
        self(lambda client: _create_namespace(client, name))
        yield name
        self(lambda client: _delete_namespace(client, name))


async def _create_namespace(client: Client, name: str) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    # Pods are refused before the namespace has its default ServiceAccount. The controller that
    # makes it takes half a minute to come back after a test has restarted the API server.
    with suppress(AlreadyExistsError):
        await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, name)


async def _delete_namespace(client: Client, name: str) -> None:
    requests = metadata_only(BIND_REQUESTS)
    with suppress(NotFoundError):  # without the chart, the kind is not served
        for request in await client.list(requests, namespace=name):
            with suppress(NotFoundError):
                await client.delete(requests, request.metadata.name, name)
    await client.delete(NAMESPACES, name)
