"""The typed client of the API server that every component of Bindery uses.

Verbs take a `Resource` and return its msgspec type. Failures that may be temporary are retried,
with jitter, until the call's timeout (`http.retry` decides which); other failures are raised as a
`KubeError`. A `http.carrier` sends the requests. Invariant: a call is repeated only if the
repetition cannot have another effect than the call itself.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self, TypeVar

from bindery.kube.access.credentials import Credentials
from bindery.kube.environment import Environment
from bindery.kube.errors import ConflictError, OutcomeUnknownError
from bindery.kube.http.calls import Caller, Listed, Turn
from bindery.kube.http.carrier import Carrier, FinishingCarrier, LeftWrites, TermCarrier
from bindery.kube.http.requests import (
    Body,
    Patch,
    PatchKind,
    Selection,
    binding,
    eviction,
    is_named,
    read,
    write,
)
from bindery.kube.http.retry import Repeat
from bindery.kube.objects.resources import ObjectList, Resource
from bindery.kube.objects.watched import KubeObject
from bindery.kube.realenvironment import REAL

__all__ = ["Client", "Connecting", "PatchKind", "Selection"]

T = TypeVar("T", bound=KubeObject)
ItemT = TypeVar("ItemT")


class Client:
    """A connection to one API server; as an async context manager it is closed at the end.

    Create it with `Client.connect`. One client serves any number of concurrent calls.
    """

    def __init__(
        self,
        transport: Carrier,
        request_timeout_s: float,
        environment: Environment,
        turn: Turn = nullcontext,
    ) -> None:
        self.environment = environment
        """The clock and the chance of the process that has this client."""
        self._caller = Caller(transport, request_timeout_s, environment.random.random, turn)

    @staticmethod
    def connect(
        kubeconfig: Path | None = None,
        *,
        context: str | None = None,
        user_agent: str,
        request_timeout_s: float = 30.0,
        connections: int = 64,
        credentials: Credentials | None = None,
        is_command: bool = False,
    ) -> "Connecting":
        """Read the configuration and make a client: await it, or use it in `async with`.

        Without `kubeconfig`: the in-cluster configuration, else the default kubeconfig; `context`
        is the name of a context, by default the current one. `request_timeout_s` limits each call
        with all its attempts; `connections` limits concurrent requests, watches not counted. With
        `credentials`, no configuration is read. `is_command`: start fast, for few requests.
        """

        async def make() -> Client:
            access = credentials or await Credentials.load(kubeconfig, context)
            carrier = _carrier(access, user_agent, connections, is_command=is_command)
            return Client(carrier, request_timeout_s, REAL)

        return Connecting(make)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; calls in progress fail."""
        await self._caller.transport.close()

    def in_turn(self, turn: Turn) -> "Client":
        """Return a client of the same connections whose calls wait for `turn`, except watches.

        The timeout of a call starts after its turn has come.
        """
        return Client(self._caller.transport, self._caller.timeout_s, self.environment, turn)

    def within(self, is_valid: Callable[[], bool]) -> "Client":
        """Return a client of the same connections for one term of leadership; see `TermCarrier`."""
        carrier = TermCarrier(self._caller.transport, is_valid)
        return Client(carrier, self._caller.timeout_s, self.environment)

    def finishing(self, writes: LeftWrites) -> "Client":
        """Return a client of the same connections whose writes go on when a caller is cancelled.

        `writes` has the writes that go on.
        """
        carrier = FinishingCarrier(self._caller.transport, writes)
        return Client(carrier, self._caller.timeout_s, self.environment)

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        """Read one object."""
        path = resource.path(namespace, name)
        return await self._caller.ask(resource, read(resource, "get", path))

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> list[T]:
        """Read all objects of a kind, page by page, as of one resourceVersion."""
        selection = Selection(namespace, label_selector, field_selector)
        found, _ = await self._caller.list(resource, resource.decode_page, selection)
        return found

    async def list_with_version(
        self,
        resource: Resource[T],
        decode: Callable[[bytes], ObjectList[ItemT]],
        selection: Selection,
    ) -> Listed[ItemT]:
        """Read all objects and their resourceVersion; `decode` decodes one page."""
        return await self._caller.list(resource, decode, selection)

    def watch(
        self,
        resource: Resource[T],
        selection: Selection,
        *,
        resource_version: str,
        timeout_s: int,
        idle_s: float,
    ) -> AsyncGenerator[bytes, None]:
        """Watch with bookmarks from `resource_version` on; yield one JSON event for each line.

        The server ends the watch after `timeout_s`; silence for `idle_s` counts as a broken
        connection (OutcomeUnknownError). The watch is not retried. Close the generator to end it.
        """
        return self._caller.watch(
            resource,
            selection,
            idle_s,
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            timeoutSeconds=str(timeout_s),
        )

    async def create(self, resource: Resource[T], body: Body, namespace: str = "") -> T:
        """Create an object.

        A named object is tried again after a 5xx answer, so AlreadyExistsError may be caused by an
        earlier attempt of the same call. An object with generateName is not tried again.
        """
        repeat = Repeat.ANSWERED if is_named(body) else Repeat.REFUSED
        request = write(resource, "create", resource.path(namespace), repeat, body)
        return await self._caller.ask(resource, request)

    async def create_below(
        self, resource: Resource[T], name: str, subresource: str, body: Body, namespace: str = ""
    ) -> T:
        """Create what the `subresource` of an object makes, such as a token of an account.

        Not tried again after an answer of the server: each call may make another one.
        """
        path = resource.path(namespace, name, subresource)
        return await self._caller.ask(
            resource, write(resource, "create", path, Repeat.REFUSED, body)
        )

    async def try_create(
        self, resource: Resource[T], body: Body, namespace: str = ""
    ) -> tuple[str, ...]:
        """Check by a dry run whether an object could be created; return the warnings.

        Each warning is a header, `299 - "TEXT"`. Not retried.
        """
        path = f"{resource.path(namespace)}?dryRun=All"
        request = write(resource, "create", path, Repeat.UNSENT, body)
        return (await self._caller.answer(request)).warnings

    async def replace(
        self,
        resource: Resource[T],
        name: str,
        body: Body,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """Replace an object. If the body has a resourceVersion, only that version is replaced."""
        request = write(
            resource, "update", resource.path(namespace, name, subresource), Repeat.ALWAYS, body
        )
        return await self._caller.ask(resource, request)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Patch,
        *,
        namespace: str = "",
        subresource: str = "",
        kind: PatchKind = PatchKind.MERGE,
    ) -> T:
        """Change part of an object; a server-side apply takes over the fields in the patch."""
        path = resource.path(namespace, name, subresource)
        if kind is PatchKind.APPLY:
            path += f"?force=true&fieldManager={self._caller.transport.field_manager}"
        request = write(
            resource,
            "patch",
            path,
            # A JSON patch may append to a list, so applying it twice has another effect.
            Repeat.ANSWERED if kind is PatchKind.JSON else Repeat.ALWAYS,
            patch,
            kind.value,
        )
        return await self._caller.ask(resource, request)

    async def update(
        self,
        resource: Resource[T],
        name: str,
        namespace: str,
        change: Callable[[T], Mapping[str, Any] | None],
        *,
        subresource: str = "",
    ) -> T:
        """Read an object, and write the merge patch from `change` to this version of it.

        After a conflict or a lost answer, the object is read again and `change` is called again;
        its result must depend on its argument. None means that no write is needed. Raises
        ConflictError when the call's timeout is over before a write succeeded.
        """
        give_up_s = asyncio.get_running_loop().time() + self._caller.timeout_s
        attempt = 0
        while True:
            current = await self.get(resource, name, namespace)
            patch = change(current)
            if patch is None:
                return current
            try:
                return await self._patch_version(resource, current, patch, subresource)
            except (ConflictError, OutcomeUnknownError):
                delay_s = self._caller.policy.conflict_delay_s(attempt, self._caller.draw())
                if asyncio.get_running_loop().time() + delay_s >= give_up_s:
                    raise
            await asyncio.sleep(delay_s)
            attempt += 1

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        namespace: str = "",
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        """Delete an object: only with this `uid` and this version, if given (ConflictError).

        Dependents are deleted in the background. NotFoundError is raised, unless an earlier attempt
        of this call may have deleted the object.
        """
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        wanted = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {name: value for name, value in wanted.items() if value is not None}
        if preconditions:
            options["preconditions"] = preconditions
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        request = write(
            resource,
            "delete",
            resource.path(namespace, name),
            Repeat.ALWAYS if preconditions else Repeat.ANSWERED,
            options,
        )
        await self._caller.call(request)

    async def delete_all(self, resource: Resource[T], selection: Selection) -> None:
        """Delete the objects that `selection` has, with their dependents in the background."""
        target = resource.path(selection.namespace) + selection.query()
        options = {"propagationPolicy": "Background"}
        request = write(resource, "deletecollection", target, Repeat.ALWAYS, options)
        await self._caller.call(request)

    async def bind(
        self,
        namespace: str,
        pod_name: str,
        pod_uid: str,
        node_name: str,
        *,
        version: str = "",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Bind a pod to a node, with the `binding` subresource.

        The API server copies `annotations` onto the pod in the same write, and `labels` since
        Kubernetes 1.35.

        Raises ConflictError when the pod has another uid or `version`, is bound already, or is
        being deleted.
        """
        further = {"resourceVersion": version, "labels": labels, "annotations": annotations}
        given = {name: values for name, values in further.items() if values}
        await self._caller.call(binding(namespace, pod_name, pod_uid, node_name, given))

    async def evict(
        self, namespace: str, pod_name: str, pod_uid: str, *, dry_run: bool = False
    ) -> None:
        """Evict a pod with its own grace period, with the `eviction` subresource. Not retried.

        Raises ThrottledError when a disruption budget forbids it, ConflictError when the pod has
        another uid, NotFoundError when it does not exist. `dry_run`: only check.
        """
        await self._caller.call(eviction(namespace, pod_name, pod_uid, dry_run=dry_run))

    async def _patch_version(
        self, resource: Resource[T], current: T, patch: Mapping[str, Any], subresource: str
    ) -> T:
        meta = current.metadata
        metadata = {**patch.get("metadata", {}), "resourceVersion": meta.resource_version}
        return await self.patch(
            resource,
            meta.name,
            {**patch, "metadata": metadata},
            namespace=meta.namespace,
            subresource=subresource,
        )


def _carrier(
    access: Credentials, user_agent: str, connections: int, *, is_command: bool
) -> Carrier:
    """Return a carrier for `access`; aiohttp, which takes long to import, only if needed."""
    if is_command and access.proxy is None:
        from bindery.kube.http.threadtransport import ThreadTransport

        return ThreadTransport(access, user_agent, connections)
    from bindery.kube.http.transport import Transport

    return Transport(access, user_agent, connections)


class Connecting:
    """A client that is not connected yet: await it, or use it in `async with`."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Client]]) -> None:
        self._make = make
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, Any, Client]:
        return self._make().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._make()
        return self._client

    async def __aexit__(self, *_exception: object) -> None:
        if self._client is not None:
            await self._client.close()
