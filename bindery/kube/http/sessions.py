"""An aiohttp session that can be replaced while it is used, for watches and for proxies.

Used by `transport`. aiohttp has no way to close only the idle connections of a session.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
from yarl import URL

from bindery.kube.access.credentials import Credentials
from bindery.kube.http.connections import CONNECT_TIMEOUT_S, notice_silence

_KEEP_S: Final = 75.0


class ReplaceableSession:
    """Connections to the server of `credentials`, with its present certificate."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._session = aiohttp.ClientSession(
            # The slots bound requests; watches must not take connections away from them.
            connector=aiohttp.TCPConnector(
                limit=0,
                ssl=credentials.tls or True,
                socket_factory=_socket,
                keepalive_timeout=_KEEP_S,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        )
        # aiohttp would silently repeat GET, PUT and DELETE when a kept connection drops: then a
        # deletion that finds nothing could be a repetition. There is no public switch; aiohttp's
        # own test client sets this one.
        self._session._retry_connection = False  # noqa: SLF001
        self._users = 0
        self._streams: set[aiohttp.ClientResponse] = set()
        self.is_retired = False
        """Whether another session is used in its place."""
        self._closing: asyncio.Task[None] | None = None

    @property
    def is_used(self) -> bool:
        """Whether a request is under way."""
        return self._users > 0

    @asynccontextmanager
    async def request(
        self, method: str, target: str, *, is_stream: bool = False, **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; `is_stream`: `retire` ends its answer, which fails then."""
        self._users += 1
        try:
            async with self._session.request(
                method,
                URL(self._credentials.server + target, encoded=True),
                allow_redirects=False,
                proxy=self._credentials.proxy,
                server_hostname=self._credentials.tls_server_name,
                **options,
            ) as response:
                if is_stream:
                    self._streams.add(response)
                    if self.is_retired:
                        response.close()
                try:
                    yield response
                finally:
                    self._streams.discard(response)
        finally:
            self._users -= 1
            if self.is_retired and not self._users:
                await self._session.close()

    def retire(self) -> None:
        """End the streams now, and close the connections when the last request has ended."""
        self.is_retired = True
        for response in tuple(self._streams):
            response.close()
        if not self._users:
            self._closing = asyncio.ensure_future(self._session.close())

    async def close(self) -> None:
        """Close all connections; requests fail."""
        await self._session.close()


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Make a socket that detects a lost peer within about 30 s."""
    family, kind, protocol, _, _ = address
    connection = socket.socket(family, kind, protocol)
    notice_silence(connection)
    return connection
