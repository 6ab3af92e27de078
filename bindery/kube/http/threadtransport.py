"""Sends requests to the API server with the standard library, each in a thread.

For commands: importing aiohttp and the metrics takes longer than the requests of most commands.
`http.transport` serves processes that make many requests at a time, and proxies. Connections are
kept and used again. The connection of a late or cancelled request is closed, which ends the thread.
Invariant: nothing is sent after `send` has raised UnreachableError.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from threading import Lock, Thread
from typing import Final, TypeVar
from urllib.parse import urlsplit

from bindery.kube.access.credentials import Credentials
from bindery.kube.errors import (
    ConfigurationError,
    OutcomeUnknownError,
    UnreachableError,
    error_from_answer,
)
from bindery.kube.http.carrier import Answer, headers, send_as
from bindery.kube.http.requests import ApiRequest

_CONNECT_TIMEOUT_S: Final = 10.0

T = TypeVar("T")


class ThreadTransport:
    """Connections to one API server with one identity, at most `connections` for requests.

    Raises:
        ConfigurationError: the address of the server is not valid.
    """

    def __init__(self, credentials: Credentials, user_agent: str, connections: int) -> None:
        self._credentials = credentials
        self._user_agent = user_agent
        self.field_manager = user_agent.partition("/")[0]
        """The name under which server-side apply records Bindery's fields."""
        self._slots = asyncio.Semaphore(connections)
        self._idle = [self._connection()]  # not open yet; raises for an invalid address
        self._busy: set[_Connection] = set()

    async def close(self) -> None:
        """Close all connections; threads that wait for an answer end."""
        for busy in self._busy:
            busy.abort()
        while self._idle:
            self._idle.pop().close()

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        """Send once and return the answer."""
        used: _Connection | None = None
        try:
            async with asyncio.timeout(timeout_s), self._slots:
                connection = used = self._idle.pop() if self._idle else self._connection()
                self._busy.add(connection)
                try:
                    answer = await send_as(
                        self._credentials,
                        lambda: _wait(
                            connection,
                            request,
                            lambda: connection.exchange(request, self._headers(request)),
                        ),
                    )
                finally:
                    self._put_back(connection)
                return answer
        except TimeoutError as error:
            text = f"{request.verb} {request.resource}: no answer in {timeout_s:.1f} s"
            if used is None:
                raise UnreachableError(f"{text}: all connections are busy") from error
            if not used.has_sent:
                raise UnreachableError(text) from error
            raise OutcomeUnknownError(text) from error

    async def stream(self, request: ApiRequest, idle_s: float) -> AsyncGenerator[bytes, None]:
        """Yield the lines of an endless answer; silence for `idle_s` is a failure."""
        if self._credentials.due:
            await self._credentials.renew()
        connection = self._connection()
        self._busy.add(connection)
        try:
            response = await _wait(
                connection, request, lambda: connection.open(request, self._headers(request))
            )
            if response.status >= 400:
                answer = await _wait(connection, request, lambda: _read(response))
                if response.status == 401 and self._credentials.authorization is not None:
                    await self._credentials.renew(rejected=self._credentials.authorization)
                raise error_from_answer(answer.status, answer.body, answer.retry_after)
            connection.limit_silence(idle_s)
            while line := await _wait(connection, request, response.readline):
                yield line
        finally:
            self._busy.discard(connection)
            connection.abort()

    def _connection(self) -> "_Connection":
        return _Connection(self._credentials)

    def _headers(self, request: ApiRequest) -> dict[str, str]:
        return headers(request, self._credentials, self._user_agent)

    def _put_back(self, connection: "_Connection") -> None:
        self._busy.discard(connection)
        if connection.is_reusable:
            self._idle.append(connection)
        else:
            connection.abort()


class _Connection(HTTPConnection):
    """A connection to the API server. One thread at a time uses it; any thread may abort it."""

    def __init__(self, credentials: Credentials) -> None:
        try:
            url = urlsplit(credentials.server)
            port = url.port or (443 if credentials.tls else 80)
        except ValueError as error:
            raise ConfigurationError(f"server {credentials.server}: {error}") from error
        super().__init__(url.hostname or "", port, timeout=_CONNECT_TIMEOUT_S)
        self._tls = credentials.tls
        self._server_name = credentials.tls_server_name or url.hostname
        self._prefix = url.path
        self._lock = Lock()  # over the two that follow: a request is sent or aborted
        self._is_aborted = False
        self.has_sent = False
        """Whether a part of the request may have been sent."""
        self.is_reusable = False
        """Whether the last answer was read completely, and the connection is open."""

    def connect(self) -> None:
        """Open the connection.

        Raises:
            OSError: the server cannot be reached, or its certificate is not accepted.
        """
        super().connect()
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)
        self.sock.settimeout(None)  # `abort` ends a wait that is too long

    def exchange(self, request: ApiRequest, sent: dict[str, str]) -> Answer:
        """Send `request` with the headers `sent`; return the answer."""
        answer = _read(self.open(request, sent))
        # `HTTPConnection` closes the socket where the server does not keep the connection.
        self.is_reusable = self.sock is not None and not self._is_aborted
        return answer

    def open(self, request: ApiRequest, sent: dict[str, str]) -> HTTPResponse:
        """Send `request` with the headers `sent`; return the answer with its body unread."""
        self.is_reusable = self.has_sent = False
        if self.sock is None:
            self.connect()
        with self._lock:
            if self._is_aborted:
                raise ConnectionAbortedError("the request was given up")
            self.has_sent = True
        self.request(request.method, self._prefix + request.target, request.body, sent)
        return self.getresponse()

    def limit_silence(self, idle_s: float) -> None:
        """Make a read fail after a silence of `idle_s`."""
        if self.sock is not None:
            self.sock.settimeout(idle_s)

    def abort(self) -> None:
        """Prevent further sending, and end the wait of the thread that uses the connection."""
        with self._lock:
            self._is_aborted = True
        sock = self.sock
        if sock is not None:
            with suppress(OSError):  # not connected yet, or not any more
                # Not `close`: its number could be another file's before the thread wakes. Not
                # SSLSocket's own method: it takes the TLS state away from a thread that reads.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _read(response: HTTPResponse) -> Answer:
    given = response.headers
    warnings = tuple(given.get_all("Warning", ()))
    return Answer(response.status, response.read(), given.get("Retry-After"), warnings)


async def _wait(connection: _Connection, request: ApiRequest, blocking: Callable[[], T]) -> T:
    """Call `blocking`, which uses `connection` for `request`, and return its result.

    Raises:
        UnreachableError: nothing was sent.
        OutcomeUnknownError: the failure came later.
    """
    try:
        return await _in_thread(blocking)
    except (OSError, HTTPException, ValueError) as error:
        text = f"{request.verb} {request.resource}: {type(error).__name__}: {error}"
        if connection.has_sent:
            raise OutcomeUnknownError(text) from error
        raise UnreachableError(text) from error


async def _in_thread(blocking: Callable[[], T]) -> T:
    """Call `blocking` in a thread and return its result.

    The thread is a daemon, because the end of the process would wait for threads of an executor,
    and so for a server that does not answer.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: Exception | None) -> None:
        if outcome.done():  # the caller no longer waits
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(value)  # type: ignore[arg-type]  # T may be None

    def run() -> None:
        value, error = None, None
        try:
            value = blocking()
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, value, error)

    Thread(target=run, name="bindery-request", daemon=True).start()
    return await outcome
