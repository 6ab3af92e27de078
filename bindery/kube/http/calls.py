"""Calls: requests with retries, until success, a permanent error or a timeout.

Used between `client`, which builds requests, and a `http.carrier`, which sends a request once.
`http.retry` decides about repetitions.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final, TypeVar

import msgspec

from bindery.kube.errors import (
    GoneError,
    KubeError,
    MalformedAnswerError,
    NotFoundError,
    OutcomeUnknownError,
    ServerError,
    UnreachableError,
)
from bindery.kube.http.carrier import Answer, Carrier
from bindery.kube.http.requests import ApiRequest, Selection, read
from bindery.kube.http.retry import RetryPolicy
from bindery.kube.objects.resources import ObjectList, Resource
from bindery.kube.objects.watched import KubeObject

T = TypeVar("T", bound=KubeObject)
ItemT = TypeVar("ItemT")
Listed = tuple[list[ItemT], str]
"""All objects, and the resourceVersion of the list."""

PAGE_LIMIT: Final = 500
"""Objects in a page of a list, as in kubectl and client-go."""


Turn = Callable[[], AbstractAsyncContextManager[None]]
"""Waits until a call may be made; it is under way as long as the context is entered."""


class Caller:
    """Makes calls, each after waiting for its turn, then within `timeout_s` seconds.

    `draw` returns a random number in [0, 1).
    """

    def __init__(
        self,
        transport: Carrier,
        timeout_s: float,
        draw: Callable[[], float],
        turn: Turn = nullcontext,
    ) -> None:
        self.transport = transport
        self.timeout_s = timeout_s
        self.draw = draw
        self._turn = turn
        self.policy = RetryPolicy()

    async def call(self, request: ApiRequest) -> bytes:
        """Send until success; return the body of the answer."""
        return (await self.answer(request)).body

    async def answer(self, request: ApiRequest) -> Answer:
        """Send until success; return the answer."""
        async with self._turn():
            return await self._call(request)

    async def _call(self, request: ApiRequest) -> Answer:
        now_s = asyncio.get_running_loop().time
        begin_s = now_s()
        give_up_s = begin_s + self.timeout_s
        attempt = 0
        uncertain = False  # whether an earlier attempt may have taken effect
        while True:
            attempt_s = self.policy.attempt_s(request.repeat, give_up_s - now_s())
            try:
                return await self.transport.send(request, attempt_s)
            except KubeError as failure:
                if uncertain and request.verb == "delete" and isinstance(failure, NotFoundError):
                    return Answer(failure.status, b"", None)
                uncertain |= isinstance(failure, (OutcomeUnknownError, ServerError))
                delay_s = self.policy.delay_s(
                    failure,
                    attempt=attempt,
                    repeat=request.repeat,
                    remaining_s=give_up_s - now_s(),
                    draw=self.draw(),
                )
                if delay_s is not None:
                    await asyncio.sleep(delay_s)
                if delay_s is None or now_s() >= give_up_s:
                    if attempt and type(failure) in (OutcomeUnknownError, UnreachableError):
                        waited = f"attempt {attempt + 1}, after {now_s() - begin_s:.1f} s in all"
                        whole = type(failure)(f"{failure} ({waited})")
                        whole.is_of_outage = failure.is_of_outage
                        raise whole from failure
                    raise
            attempt += 1

    async def ask(self, resource: Resource[T], request: ApiRequest) -> T:
        """Make a call whose answer is an object of `resource`."""
        body = await self.call(request)
        try:
            return resource.decode(body)
        except msgspec.DecodeError as error:
            raise MalformedAnswerError(f"{resource.kind}: {error}") from error

    async def list(
        self,
        resource: Resource[Any],
        decode: Callable[[bytes], ObjectList[ItemT]],
        selection: Selection,
    ) -> Listed[ItemT]:
        """Read all objects of a kind, page by page; `decode` reads one page.

        If a continue token expires (410), the list starts again without pages, so that it cannot
        expire.
        """
        try:
            return await self._pages(resource, decode, selection, PAGE_LIMIT)
        except GoneError:
            return await self._pages(resource, decode, selection, 0)

    async def _pages(
        self,
        resource: Resource[Any],
        decode: Callable[[bytes], ObjectList[ItemT]],
        selection: Selection,
        limit: int,
    ) -> Listed[ItemT]:
        path = resource.path(selection.namespace)
        found: Listed[ItemT] = ([], "")
        parameters = {"limit": str(limit)} if limit else {}
        while True:
            body = await self.call(read(resource, "list", path + selection.query(**parameters)))
            try:
                page = decode(body)
            except msgspec.DecodeError as error:
                raise MalformedAnswerError(f"list of {resource.plural}: {error}") from error
            found[0].extend(page.items or ())
            if not page.metadata.continue_token:
                return found[0], page.metadata.resource_version
            parameters["continue"] = page.metadata.continue_token

    def watch(
        self, resource: Resource[Any], selection: Selection, idle_s: float, **parameters: str
    ) -> AsyncGenerator[bytes, None]:
        """Open a watch, once; see `Client.watch`."""
        target = resource.path(selection.namespace) + selection.query(watch="true", **parameters)
        return self.transport.stream(read(resource, "watch", target), idle_s)
