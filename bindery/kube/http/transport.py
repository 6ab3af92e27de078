"""Sends one HTTP request to the API server and translates its errors.

Used by `client`, which decides about repetitions and decodes the answers. Requests use the
connections of `http.connections`, after waiting for one of `connections` slots. Watches use an
aiohttp session, and with a proxy all requests do. Every failure is raised as a `KubeError`;
`UnreachableError` means that no byte of the request was sent.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from functools import cache
from typing import NoReturn

import aiohttp
from prometheus_client import Counter, Histogram

from bindery.kube.access.credentials import Credentials
from bindery.kube.errors import (
    KubeError,
    OutcomeUnknownError,
    SilentError,
    UnreachableError,
    error_from_answer,
)
from bindery.kube.http.carrier import Answer, headers, send_as
from bindery.kube.http.connections import CONNECT_TIMEOUT_S, Connections, NotConnectedError
from bindery.kube.http.outages import Outages
from bindery.kube.http.requests import ApiRequest
from bindery.kube.http.sessions import ReplaceableSession
from bindery.kube.metrics import API_REQUEST_SECONDS, API_REQUESTS


class Transport:
    """Connections and an aiohttp session to one API server, with one identity."""

    def __init__(self, credentials: Credentials, user_agent: str, connections: int) -> None:
        self._credentials = credentials
        self._slots = asyncio.Semaphore(connections)
        self._user_agent = user_agent
        self._outages = Outages(asyncio.get_running_loop().time)
        self.field_manager = user_agent.partition("/")[0]
        """The name under which server-side apply records Bindery's fields."""
        self._connections = Connections(
            credentials.server, credentials.tls, credentials.tls_server_name
        )
        self._session = ReplaceableSession(credentials)
        self._retired: list[ReplaceableSession] = []
        credentials.reloaded.append(self._replace)

    async def close(self) -> None:
        """Close all connections."""
        self._connections.close()
        for session in (self._session, *self._retired):
            await session.close()

    def _replace(self) -> None:
        """Make new connections from now on: the certificate of this process has changed."""
        self._connections.retire()
        self._retired = [one for one in self._retired if one.is_used]
        self._retired.append(self._session)
        self._session.retire()
        self._session = ReplaceableSession(self._credentials)

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        """Send once and return the answer."""
        try:
            return await self._send(request, timeout_s)
        except KubeError as error:
            self._outages.failed(error)
            raise

    async def _send(self, request: ApiRequest, timeout_s: float) -> Answer:
        sent = False

        def sending() -> None:
            nonlocal sent
            sent = True

        try:
            async with asyncio.timeout(timeout_s), self._slots:
                return await send_as(self._credentials, lambda: self._exchange(request, sending))
        except TimeoutError as error:
            text = f"{request.verb} {request.resource}: no answer in {timeout_s:.1f} s"
            if sent:
                _count(request, "lost")
                raise OutcomeUnknownError(text) from error
            _count(request, "unreachable")
            raise UnreachableError(f"{text}: no connection was free or could be made") from error

    async def _exchange(self, request: ApiRequest, sending: Callable[[], None]) -> Answer:
        now_s = asyncio.get_running_loop().time
        started_s = now_s()
        given = headers(request, self._credentials, self._user_agent)
        try:
            if self._credentials.proxy is not None:
                sending()  # aiohttp does not show when a connection is made
                answer = await self._by_session(request, given)
            else:
                answer = await self._connections.exchange(
                    request.method, request.target, given, request.body, sending
                )
        except (aiohttp.ClientError, NotConnectedError, OSError) as error:
            raise _failure(request, error) from error
        _count(request, str(answer.status))
        self._outages.answered(answer.status)
        _time(request, now_s() - started_s)
        return answer

    async def _by_session(self, request: ApiRequest, sent: dict[str, str]) -> Answer:
        async with self._session.request(
            request.method, request.target, data=request.body, headers=sent
        ) as response:
            body = await response.read()
        given = response.headers
        return Answer(
            response.status, body, given.get("Retry-After"), tuple(given.getall("Warning", ()))
        )

    async def stream(self, request: ApiRequest, idle_s: float) -> AsyncGenerator[bytes, None]:
        """Yield the lines of an endless answer, until the certificate of this process changes.

        Raises:
            SilentError: nothing was received for `idle_s`.
            KubeError: the connection cannot be opened, or was lost.
        """
        if self._credentials.due:
            await self._credentials.renew()
        is_open = False
        session = self._session
        try:
            async with session.request(
                request.method,
                request.target,
                is_stream=True,
                headers=headers(request, self._credentials, self._user_agent),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=idle_s
                ),
            ) as response:
                _count(request, str(response.status))
                self._outages.answered(response.status)
                if response.status >= 400:
                    await self._refuse(response)
                is_open = True
                async for line in lines(response.content.iter_any()):
                    yield line
        except (aiohttp.ClientError, OSError) as error:
            if is_open and session.is_retired:
                return  # as at the end of a watch: the next one has the new certificate
            if is_open and isinstance(error, aiohttp.SocketTimeoutError):
                text = f"watch {request.resource}: nothing came for {idle_s:g} s"
                raise SilentError(text) from error
            failure = _failure(request, error)
            self._outages.failed(failure)
            raise failure from error

    async def _refuse(self, response: aiohttp.ClientResponse) -> NoReturn:
        body = await response.read()
        if response.status == 401 and self._credentials.authorization is not None:
            await self._credentials.renew(rejected=self._credentials.authorization)
        refusal = error_from_answer(response.status, body, response.headers.get("Retry-After"))
        self._outages.failed(refusal)
        raise refusal


async def lines(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the lines of `chunks`, which are cut anywhere; an incomplete last line is yielded too.

    A burst of events comes in few chunks, so this is cheaper than to read line by line.
    """
    begun: list[bytes] = []
    """The parts of an incomplete line; objects may have megabytes."""
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        begun.append(first)
        for following in others:
            yield b"".join((*begun, b"\n"))
            begun = [following]
    if rest := b"".join(begun):
        yield rest


def _failure(request: ApiRequest, error: Exception) -> KubeError:
    text = f"{request.verb} {request.resource}: {type(error).__name__}: {error}"
    if isinstance(
        error, (NotConnectedError, aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
    ):
        _count(request, "unreachable")
        return UnreachableError(text)
    _count(request, "lost")
    return OutcomeUnknownError(text)


@cache
def _counter(verb: str, resource: str, code: str) -> Counter:
    return API_REQUESTS.labels(verb, resource, code)


@cache
def _histogram(verb: str, resource: str) -> Histogram:
    return API_REQUEST_SECONDS.labels(verb, resource)


def _count(request: ApiRequest, code: str) -> None:
    _counter(request.verb, request.resource, code).inc()


def _time(request: ApiRequest, seconds: float) -> None:
    _histogram(request.verb, request.resource).observe(seconds)
