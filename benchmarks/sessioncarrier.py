"""A carrier that sends every request by an aiohttp session, as most Python clients do.

Used by `bareclient`. The project's own transport carries short requests over connections of its
own, so a bare client that uses it is no longer what an ordinary library would make of the same
writes; with this carrier it is.
"""

from collections.abc import AsyncGenerator

import aiohttp
from yarl import URL

from bindery.kube.access.credentials import Credentials
from bindery.kube.client import Client
from bindery.kube.http.carrier import Answer, headers, send_as
from bindery.kube.http.requests import ApiRequest
from bindery.kube.realenvironment import REAL


class SessionCarrier:
    """An aiohttp session to one API server. Nothing is watched, and errors are aiohttp's."""

    def __init__(self, credentials: Credentials, user_agent: str, connections: int) -> None:
        self.field_manager = self._user_agent = user_agent
        self._credentials = credentials
        connector = aiohttp.TCPConnector(limit=connections, ssl=credentials.tls or True)
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar()
        )

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        """Send once and return the answer."""

        async def exchange() -> Answer:
            async with self._session.request(
                request.method,
                URL(self._credentials.server + request.target, encoded=True),
                data=request.body,
                headers=headers(request, self._credentials, self._user_agent),
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as response:
                return Answer(response.status, await response.read(), None)

        return await send_as(self._credentials, exchange)

    def stream(self, request: ApiRequest, idle_s: float) -> AsyncGenerator[bytes, None]:
        """Raise NotImplementedError."""
        text = f"a bare client watches nothing: {request.verb} {request.resource}, {idle_s} s"
        raise NotImplementedError(text)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


def connect(credentials: Credentials, user_agent: str, connections: int) -> Client:
    """Return a client whose requests an aiohttp session carries."""
    return Client(SessionCarrier(credentials, user_agent, connections), 30.0, REAL)
