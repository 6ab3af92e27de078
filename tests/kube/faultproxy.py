"""An HTTP proxy on loopback in front of the real API server that breaks things on demand.

Clients speak plain HTTP to the proxy; the proxy speaks TLS to the API server. A configured fault
happens to the next requests that match; everything else passes unchanged.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import yaml
from aiohttp import web


@dataclass
class Fault:
    """What happens to the next `times` requests with this method and in this path."""

    method: str
    path_part: str
    times: int = 1
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    drop_after_send: bool = False
    drop_before_send: bool = False
    hang: bool = False
    hang_after_send: bool = False
    is_hanging: bool = False
    """Whether a request has got its answer from the API server, and its sender has not."""

    def matches(self, request: web.BaseRequest) -> bool:
        return (
            self.times > 0 and request.method == self.method and self.path_part in request.path_qs
        )


@dataclass
class Stream:
    """A watch that is under way."""

    path_qs: str
    response: web.StreamResponse
    request: web.BaseRequest
    silent: bool = False
    change_chunk: Callable[[bytes], bytes] | None = None


class FaultProxy:
    def __init__(self, admin_kubeconfig: Path, directory: Path) -> None:
        given = yaml.safe_load(admin_kubeconfig.read_text())
        self._upstream = given["clusters"][0]["cluster"]["server"]
        self._faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        """(method, path and query) of every request, in order."""
        self.streams: list[Stream] = []
        self.accepts_streams = asyncio.Event()
        self.accepts_streams.set()
        self._given = given
        self.port = 0
        self._peers: set[object] = set()
        self.kubeconfig = directory / "proxied.kubeconfig"

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["FaultProxy"]:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=_trusting()),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        ) as session:
            self._session = session
            self._runner = web.ServerRunner(
                web.Server(self._handle, handler_cancellation=True), shutdown_timeout=0.1
            )
            await self._runner.setup()
            await self.listen()
            self._given["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{self.port}"}
            self.kubeconfig.write_text(yaml.safe_dump(self._given))
            try:
                yield self
            finally:
                self.cut_streams()
                await self._runner.cleanup()

    async def listen(self) -> None:
        """Accept connections, always on the same port."""
        self._site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await self._site.start()
        self.port = self._runner.addresses[0][1]

    async def stop_listening(self) -> None:
        """Refuse connections from now on."""
        await self._site.stop()

    def break_next(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    @property
    def connections(self) -> int:
        """How many connections have carried requests."""
        return len(self._peers)

    def count(self, method: str, path_part: str) -> int:
        return sum(1 for verb, path in self.requests if verb == method and path_part in path)

    def cut_streams(self) -> None:
        """Cut the connections of all watches, in the middle of whatever they carry."""
        for stream in self.streams:
            if stream.request.transport is not None:
                stream.request.transport.abort()
        self.streams.clear()

    async def inject(self, line: bytes) -> None:
        """Send `line` to all watches, as if the API server had sent it."""
        for stream in self.streams:
            await stream.response.write(line)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs))
        assert request.transport is not None, "a request is handled while its connection is open"
        self._peers.add(request.remote and request.transport.get_extra_info("peername"))
        fault = next((fault for fault in self._faults if fault.matches(request)), None)
        if fault is not None:
            fault.times -= 1
            if fault.drop_before_send:
                return _abort(request)
            if fault.hang:
                await asyncio.sleep(3600)
            if fault.status:
                return web.Response(status=fault.status, headers=fault.headers, text="made up")
        is_watch = "watch=true" in request.path_qs
        if is_watch:
            await self.accepts_streams.wait()
        try:
            return await self._pass_on(request, fault, is_watch)
        except aiohttp.ClientError:  # the API server has died: so does the connection
            return _abort(request)

    async def _pass_on(
        self, request: web.BaseRequest, fault: Fault | None, is_watch: bool
    ) -> web.StreamResponse:
        async with self._session.request(
            request.method,
            self._upstream + request.path_qs,
            data=await request.read() or None,
            headers={name: value for name, value in request.headers.items() if name != "Host"},
        ) as answer:
            if is_watch and answer.status == 200:
                return await self._relay(request, answer)
            body = await answer.read()
            if fault is not None and fault.drop_after_send:
                return _abort(request)
            if fault is not None and fault.hang_after_send:
                fault.is_hanging = True
                await asyncio.sleep(3600)
            return web.Response(status=answer.status, body=body, headers=_of_body(answer))

    async def _relay(
        self, request: web.BaseRequest, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=_of_body(answer))
        await response.prepare(request)
        stream = Stream(request.path_qs, response, request)
        self.streams.append(stream)
        try:
            async for chunk in answer.content.iter_any():
                if stream.silent:
                    continue
                if stream.change_chunk is not None:
                    await response.write(stream.change_chunk(chunk))
                    return _abort(request)
                await response.write(chunk)
        except ConnectionResetError:
            pass  # the client has left, or was cut off
        finally:
            if stream in self.streams:
                self.streams.remove(stream)
        return response


def _of_body(answer: aiohttp.ClientResponse) -> dict[str, str]:
    """Return the headers that describe the encoding of the body, which is passed on unchanged."""
    names = ("Content-Type", "Content-Encoding")  # the API server compresses lists above 128 KiB
    return {name: answer.headers[name] for name in names if name in answer.headers}


def _abort(request: web.BaseRequest) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
