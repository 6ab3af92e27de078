"""Kept-alive HTTP/1.1 connections for short requests, one request at a time on each.

Used by `transport` for everything but watches. A request is written at once, headers and body, and
httptools parses the answer: that takes a third of the processor time of an aiohttp session. Nothing
is repeated here. Invariant: a connection with an incomplete answer is closed.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

import httptools

from bindery.kube.http.carrier import Answer

CONNECT_TIMEOUT_S: Final = 10.0
_KEEP_S: Final = 75.0
"""Seconds after which an idle connection is closed; servers and load balancers drop silent ones."""


class NotConnectedError(Exception):
    """No connection could be made. Nothing was sent."""


class Connections:
    """Connections to one server."""

    def __init__(
        self, server: str, tls: ssl.SSLContext | None, tls_server_name: str | None = None
    ) -> None:
        """Make an empty pool.

        Args:
            server: the URL of the server.
            tls: settings to check the server of an https URL; None: the machine's certificates.
            tls_server_name: the name that the certificate must have; None: the host.
        """
        url = urlsplit(server)
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._base_path, self._netloc = url.path, url.netloc.rpartition("@")[2]
        self._tls: ssl.SSLContext | None = None
        self._server_hostname: str | None = None
        if url.scheme == "https":
            self._tls = tls or ssl.create_default_context()
            self._server_hostname = tls_server_name or self._host
        self._idle: list[tuple[float, Connection]] = []
        self._open: set[Connection] = set()
        self._retirements = 0

    async def exchange(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        sending: Callable[[], None],
    ) -> Answer:
        """Send one request and return its answer.

        `sending` is called right before the first byte is sent.

        Raises:
            NotConnectedError: no byte was sent.
            OSError: the connection was lost, or the answer is no HTTP; the request may have taken
                effect.
        """
        request = self._request(method, target, headers, body)
        connection = self._take_idle() or await self._connect()
        sending()
        try:
            answer = await connection.exchange(request)
        except BaseException:
            self._open.discard(connection)
            connection.close()
            raise
        if connection.is_reusable:
            self._idle.append((asyncio.get_running_loop().time(), connection))
        else:
            self._open.discard(connection)
            connection.close()
        return answer

    def retire(self) -> None:
        """Let no request use a present connection; each is closed after its request has ended."""
        self._retirements += 1
        for connection in self._open:
            connection.retire()
        for _, connection in self._idle:
            self._open.discard(connection)
            connection.close()
        self._idle.clear()

    def close(self) -> None:
        """Close all connections; requests under way fail."""
        for connection in self._open:
            connection.close()
        self._open.clear()
        self._idle.clear()

    def _request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> bytes:
        lines = [f"{method} {self._base_path}{target} HTTP/1.1", f"Host: {self._netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        if any("\n" in line or "\r" in line for line in lines):
            raise ValueError("a header has a line break")
        return "\r\n".join([*lines, "\r\n"]).encode("latin-1") + (body or b"")

    def _take_idle(self) -> "Connection | None":
        """Return the connection that was used last; close connections idle for long."""
        now = asyncio.get_running_loop().time()
        while self._idle and now - self._idle[0][0] > _KEEP_S:
            _, old = self._idle.pop(0)
            self._open.discard(old)
            old.close()
        while self._idle:
            _, connection = self._idle.pop()
            if connection.is_reusable:
                return connection
            self._open.discard(connection)
        return None

    async def _connect(self) -> "Connection":
        retirements = self._retirements
        connecting = asyncio.get_running_loop().create_connection(
            Connection, self._host, self._port, ssl=self._tls, server_hostname=self._server_hostname
        )
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await connecting
        except (OSError, TimeoutError) as error:
            where = f"{self._host}:{self._port}"
            text = str(error) or f"no connection in {CONNECT_TIMEOUT_S:g} s"
            raise NotConnectedError(f"cannot connect to {where}: {text}") from error
        self._open.add(connection)
        if retirements != self._retirements:
            connection.retire()
        return connection


class Connection(asyncio.Protocol):
    """One connection. Parses the answer to the last request."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._retry_after: str | None = None
        self._warnings: list[str] = []
        self._body: list[bytes] = []
        self._keeps_alive = True
        self._is_retired = False

    @property
    def is_reusable(self) -> bool:
        """Whether another request can be sent."""
        return (
            self._keeps_alive
            and not self._is_retired
            and self._transport is not None
            and not self._transport.is_closing()
        )

    async def exchange(self, request: bytes) -> Answer:
        """Send `request` and return the answer.

        Raises:
            OSError: the connection was lost, or the answer is no HTTP.
        """
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the server has closed the connection")
        self._parser = httptools.HttpResponseParser(self)
        self._retry_after, self._body, self._keeps_alive = None, [], False
        self._warnings = []
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def retire(self) -> None:
        """Allow no further request."""
        self._is_retired = True

    def close(self) -> None:
        """Close the connection; a request under way fails."""
        if self._transport is not None:
            self._transport.abort()

    # ---- asyncio.Protocol -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport, and let it detect a lost peer within about 30 s."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        notice_silence(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        """Parse the next piece of the answer."""
        if self._parser is None:
            self.close()  # no request was sent
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"the answer is no HTTP: {error}"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request under way."""
        lost = ConnectionResetError("the server has closed the connection before its answer")
        self._fail(exc if isinstance(exc, OSError) else lost)

    def _fail(self, error: OSError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # ---- the parser's callbacks -----------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        if name.lower() == b"retry-after":
            self._retry_after = value.decode("latin-1")
        elif name.lower() == b"warning":
            self._warnings.append(value.decode("latin-1"))

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Pass on the answer."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200:  # an interim answer; the answer itself follows
            self._retry_after, self._body = None, []
            return
        self._keeps_alive = self._parser.should_keep_alive()
        if self._answer is not None and not self._answer.done():
            body, warnings = b"".join(self._body), tuple(self._warnings)
            self._answer.set_result(Answer(status, body, self._retry_after, warnings))
        self._parser = None


def notice_silence(connection: socket.socket) -> None:
    """Let `connection` detect a lost peer within about 30 s."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):  # not every platform has them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
