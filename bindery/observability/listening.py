"""Where components listen, and the HTTP server that listens there.

Used by `health` for probes and metrics, and by the admission webhook. A port that is taken is an
error with its address, which the command line shows as one line.
"""

import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from aiohttp import web

LOOPBACK: Final = "127.0.0.1"
_MOST_BYTES: Final = 2**20


class ListenError(Exception):
    """An address cannot be listened on: it is in use, or belongs to another machine."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        super().__init__(f"cannot listen on {host} port {port}: {error.strerror or error}")


@dataclass(frozen=True)
class Listening:
    """Where a component answers probes and scrapes. Port 0 takes a free one."""

    health_port: int | None
    """None: nowhere."""
    metrics_port: int | None = None
    """None: /metrics is served beside the probes."""
    address: str = LOOPBACK


NOWHERE: Final = Listening(None)


@asynccontextmanager
async def serving(
    routes: Iterable[web.RouteDef],
    address: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    most_bytes: int = _MOST_BYTES,
    shutdown_s: float = 1.0,
) -> AsyncIterator[int]:
    """Serve `routes` within the block; yield the port, which is a free one for `port` 0.

    `most_bytes` limits a request's body; at the end, requests under way have `shutdown_s` seconds.

    Raises:
        ListenError: the port cannot be listened on.
    """
    application = web.Application(client_max_size=most_bytes)
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=shutdown_s)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, address, port, ssl_context=tls).start()
        except OSError as error:
            raise ListenError(address, port, error) from error
        bound: int = runner.addresses[0][1]
        yield bound
    finally:
        await runner.cleanup()
