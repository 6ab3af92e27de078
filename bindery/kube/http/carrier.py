"""The interface of carriers, which send requests to the API server, and their common parts.

`http.transport` is for long-running processes, `http.threadtransport` for commands with a few
requests. `http.calls` uses both.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple, Protocol

from bindery.kube.access.credentials import Credentials
from bindery.kube.errors import error_from_answer
from bindery.kube.http.requests import ApiRequest


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    body: bytes
    retry_after: str | None
    """The header of that name."""
    warnings: tuple[str, ...] = ()
    """The headers `Warning`, each as `299 - "TEXT"`."""


class Carrier(Protocol):
    """Sends requests to one API server, each once. Every failure is raised as a `KubeError`.

    UnreachableError is raised only if no byte of the request was sent.
    """

    field_manager: str
    """The name under which server-side apply records Bindery's fields."""

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        """Send once and return the answer."""
        ...

    def stream(self, request: ApiRequest, idle_s: float) -> AsyncGenerator[bytes, None]:
        """Yield the lines of an endless answer; silence for `idle_s` is a failure."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class TermCarrier:
    """A carrier for one term of leadership: it sends nothing once `is_valid` returns False.

    A call then waits until it is cancelled, as the work of the term is being. Without that, a
    process that was stopped for longer than its Lease would first go on where it was.
    """

    def __init__(self, carrier: Carrier, is_valid: Callable[[], bool]) -> None:
        self._carrier, self._is_valid = carrier, is_valid
        self.field_manager = carrier.field_manager

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        """Send once and return the answer."""
        if not self._is_valid():
            await asyncio.get_running_loop().create_future()
        return await self._carrier.send(request, timeout_s)

    def stream(self, request: ApiRequest, idle_s: float) -> AsyncGenerator[bytes, None]:
        """Yield the lines of an endless answer, also after the term."""
        return self._carrier.stream(request, idle_s)

    async def close(self) -> None:
        """Close all connections."""
        await self._carrier.close()


class LeftWrites:
    """The writes whose callers were cancelled before the answer: they may still take effect."""

    def __init__(self) -> None:
        self._open: set[asyncio.Task[Answer]] = set()

    async def send(self, carrier: Carrier, request: ApiRequest, timeout_s: float) -> Answer:
        """Send a write; keep it if the caller is cancelled."""
        writing = asyncio.ensure_future(carrier.send(request, timeout_s))
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            if not writing.done():
                self._open.add(writing)
                writing.add_done_callback(self._end)
            raise

    @property
    def are_open(self) -> bool:
        """Whether one has no answer yet."""
        return bool(self._open)

    def _end(self, writing: asyncio.Task[Answer]) -> None:
        self._open.discard(writing)
        if not writing.cancelled():
            writing.exception()  # else asyncio reports it as never retrieved

    async def ended(self) -> None:
        """Wait until the writes that are left now have an answer, or none in time."""
        if self._open:
            await asyncio.wait(tuple(self._open))

    def abandon(self) -> None:
        """End the writes that are left: their term is over, and some would wait for ever."""
        for writing in tuple(self._open):
            writing.cancel()


class FinishingCarrier:
    """A carrier whose writes go on when their callers are cancelled, as the server's part does."""

    def __init__(self, carrier: Carrier, writes: LeftWrites) -> None:
        self._carrier, self._writes = carrier, writes
        self.field_manager = carrier.field_manager

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        """Send once and return the answer."""
        if request.method == "GET":
            return await self._carrier.send(request, timeout_s)
        return await self._writes.send(self._carrier, request, timeout_s)

    def stream(self, request: ApiRequest, idle_s: float) -> AsyncGenerator[bytes, None]:
        """Yield the lines of an endless answer."""
        return self._carrier.stream(request, idle_s)

    async def close(self) -> None:
        """Close all connections."""
        await self._carrier.close()


async def send_as(credentials: Credentials, send: Callable[[], Awaitable[Answer]]) -> Answer:
    """Send with a valid token and return the answer; send again with a new token after a 401.

    Raises:
        ApiError: the API server refuses.
    """
    if credentials.due:
        await credentials.renew()
    authorization = credentials.authorization
    answer = await send()
    if answer.status == 401 and authorization is not None:
        await credentials.renew(rejected=authorization)
        answer = await send()
    if answer.status >= 400:
        raise error_from_answer(answer.status, answer.body, answer.retry_after)
    return answer


def headers(request: ApiRequest, credentials: Credentials, user_agent: str) -> dict[str, str]:
    """Return the headers of `request`."""
    # identity: compression costs the server more than sending the bytes over loopback or a
    # cluster's network.
    found = {"Accept": request.accept, "Accept-Encoding": "identity", "User-Agent": user_agent}
    if request.body is not None:
        found["Content-Type"] = request.content_type
    if credentials.authorization is not None:
        found["Authorization"] = credentials.authorization
    return found
