"""Connects a caller's stream with the runtime's own server for streams.

The runtime answers a call of Exec, Attach or PortForward with a URL. The caller's request for an
upgrade goes there, and from then on bytes go both ways: SPDY or WebSocket, which the caller and the
runtime agree on. Source: the kubelet's `proxyStream`, Kubernetes 1.36.
"""

import asyncio
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

_CONNECT_S: Final = 30.0
_BLOCK: Final = 64 * 1024
_PASSED: Final = ("connection", "upgrade", "sec-websocket-", "x-stream-protocol-version", "origin")
"""Beginnings of the names of the headers that the runtime needs."""


async def connect(request: web.Request, url: str) -> web.StreamResponse:
    """Connect the caller with the server at `url` until one of them ends.

    Raises:
        HTTPBadRequest: the caller does not ask for an upgrade.
        HTTPBadGateway: the runtime's server cannot be reached.
    """
    if "upgrade" not in request.headers.get("Connection", "").lower():
        raise web.HTTPBadRequest(text="unable to upgrade: missing upgrade headers in request")
    parts = urlsplit(url)
    try:
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection(parts.hostname, parts.port), _CONNECT_S
        )
    except (OSError, TimeoutError) as error:
        raise web.HTTPBadGateway(
            text=f"the runtime's streams cannot be reached: {error}"
        ) from error
    writer.write(_head(request, parts.netloc, f"{parts.path}?{parts.query}".rstrip("?")))
    caller_reader, caller_writer = _taken_over(request)
    try:
        async with asyncio.TaskGroup() as group:
            for source, sink in ((caller_reader, writer), (reader, caller_writer)):
                group.create_task(_passed(source, sink))
    finally:
        for end in (writer, caller_writer):
            end.close()
    # The connection is closed, so nothing of this is sent.
    return web.Response()


def _head(request: web.Request, host: str, path: str) -> bytes:
    """Return the head of the request to the runtime."""
    lines = [f"{request.method} {path} HTTP/1.1", f"Host: {host}"]
    lines += [
        f"{name}: {value}"
        for name, value in request.headers.items()
        if name.lower().startswith(_PASSED)
    ]
    if request.method != "GET":
        lines.append("Content-Length: 0")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _taken_over(request: web.Request) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Take the caller's connection away from the HTTP server."""
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the caller has gone")
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_BLOCK, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    transport.resume_reading()
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _passed(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Pass bytes on until `source` ends, and then end `sink`."""
    with suppress(ConnectionError):
        while block := await source.read(_BLOCK):
            sink.write(block)
            await sink.drain()
    with suppress(OSError, RuntimeError):
        if sink.can_write_eof():
            sink.write_eof()
        else:
            sink.close()
