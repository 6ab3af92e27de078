"""Connections to a bare TCP server: reuse, closing, and the text of a failure."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from bindery.kube.http.carrier import Answer
from bindery.kube.http.connections import Connections, NotConnectedError
from tests.kube.mirror import wait_until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers each request with the next of `answers`, byte by byte; counts its connections."""

    def __init__(self, *answers: bytes, closes_after: int | None = None) -> None:
        self.answers = list(answers)
        self.closes_after = closes_after
        """After so many answers of a connection it is closed."""
        self.connections = 0
        self.requests: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        answered = 0
        while answered != self.closes_after:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            self.requests.append(head)
            for byte in self.answers.pop(0):
                writer.write(bytes([byte]))
                await writer.drain()
            answered += 1
        writer.close()


@asynccontextmanager
async def connected(serve: Serve, path: str = "") -> AsyncIterator[Connections]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connections = Connections(f"http://127.0.0.1:{port}{path}", None)
    try:
        yield connections
    finally:
        connections.close()
        server.close()
        await server.wait_closed()


def ignore() -> None:
    """Take no note that a request is sent."""


async def get(connections: Connections) -> Answer:
    return await connections.exchange("GET", "/x", {"Accept": "application/json"}, None, ignore)


async def test_a_connection_is_reused() -> None:
    server = Server(OK, OK, OK)
    async with connected(server.serve, "/base") as connections:
        assert [await get(connections) for _ in range(3)] == [Answer(200, b"hi", None)] * 3

    assert server.connections == 1
    assert server.requests[0].startswith(b"GET /base/x HTTP/1.1\r\nHost: 127.0.0.1:")


async def test_simultaneous_requests_use_separate_connections() -> None:
    server = Server(OK, OK)
    async with connected(server.serve) as connections:
        await asyncio.gather(get(connections), get(connections))

    assert server.connections == 2


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\nContent-Length: 0\r\n\r\n",
            Answer(429, b"", "7"),
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            Answer(200, b"abc", None),
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, Answer(200, b"hi", None)),
        (
            b"HTTP/1.1 201 C\r\nWarning: a\r\nwarning: b\r\nContent-Length: 0\r\n\r\n",
            Answer(201, b"", None, ("a", "b")),
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", Answer(204, b"", None)),
    ],
)
async def test_answers_in_any_form_are_read(answer: bytes, expected: Answer) -> None:
    server = Server(answer, OK)
    async with connected(server.serve) as connections:
        assert await get(connections) == expected
        assert await get(connections) == Answer(200, b"hi", None)

    assert server.connections == 1


async def test_a_connection_closed_by_the_server_is_not_reused() -> None:
    goodbye = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi"
    server = Server(goodbye, OK)
    async with connected(server.serve) as connections:
        await get(connections)
        await get(connections)

    assert server.connections == 2


async def test_an_idle_connection_that_was_closed_is_replaced() -> None:
    server = Server(OK, OK, closes_after=1)
    async with connected(server.serve) as connections:
        await get(connections)
        await wait_until(lambda: not connections._idle[0][1].is_reusable)
        await get(connections)

    assert server.connections == 2


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi", "closed the connection"),
        (b"", "closed the connection"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "is no HTTP"),
    ],
)
async def test_a_truncated_or_non_http_answer_is_an_error(answer: bytes, text: str) -> None:
    server = Server(answer, OK, closes_after=1)
    async with connected(server.serve) as connections:
        with pytest.raises(OSError, match=text):
            await get(connections)
        assert await get(connections) == Answer(200, b"hi", None)


async def test_a_cancelled_request_closes_its_connection() -> None:
    closed = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        closed.set()
        writer.close()

    async with connected(say_nothing) as connections:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await get(connections)
        await asyncio.wait_for(closed.wait(), 60)
        assert not connections._open


async def test_a_refused_connection_is_an_error_that_reports_nothing_sent() -> None:
    server = await asyncio.start_server(Server().serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()

    with pytest.raises(NotConnectedError, match=f"cannot connect to 127.0.0.1:{port}"):
        await get(Connections(f"http://127.0.0.1:{port}", None))


async def test_a_header_with_a_line_break_is_refused() -> None:
    headers = {"Authorization": "a\r\nHost: b"}
    async with connected(Server().serve) as connections:
        with pytest.raises(ValueError, match="line break"):
            await connections.exchange("GET", "/", headers, None, ignore)


async def test_closing_fails_the_requests_in_flight() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with connected(say_nothing) as connections:
        asked = asyncio.create_task(get(connections))
        await wait_until(lambda: bool(connections._open))
        connections.close()
        with pytest.raises(OSError, match="closed"):
            await asyncio.wait_for(asked, 60)
