"""The agent's HTTPS server: logs, streams and figures of the pods of this node.

The API server calls it for `kubectl logs`, `exec`, `attach` and `port-forward`, and a metrics
server for `kubectl top`. Paths, parameters and answers are those of the kubelet's server
(`pkg/kubelet/server/server.go`, Kubernetes 1.36), as far as these need them.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
from aiohttp import web

from bindery.kube.errors import KubeError
from bindery.nodeagent.containers import labels
from bindery.nodeagent.containers.definitions import cri_pb2 as cri
from bindery.nodeagent.containers.errors import RuntimeCallError
from bindery.nodeagent.containers.podspec import RunPod
from bindery.nodeagent.containers.runtime import Runtime
from bindery.nodeagent.containers.serving import logs, resourcemetrics, tunnel
from bindery.nodeagent.containers.serving.callers import (
    Caller,
    Callers,
    caller_of,
    subresources_of,
    verb_of,
)
from bindery.observability.listening import serving

_TRUE: Final = ("1", "true")
_TEXT: Final = "text/plain; version=0.0.4"

log = structlog.get_logger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Served:
    """What the server shows.

    Attributes:
        find: returns the pod of a namespace and a name, None if this node has none.
        proc: where /proc is.
    """

    runtime: Runtime
    find: Callable[[str, str], RunPod | None]
    callers: Callers
    now_s: Callable[[], float]
    proc: Path = Path("/proc")


class NodeServer:
    """Answers calls about the pods of this node."""

    def __init__(self, served: Served) -> None:
        self._served = served

    @asynccontextmanager
    async def serving(self, address: str, port: int, tls: ssl.SSLContext) -> AsyncIterator[int]:
        """Serve within the block; yield the port.

        `tls` has the certificate of the server, and asks for those of callers.

        Raises:
            ListenError: the port cannot be listened on.
        """
        pod, container = "{namespace}/{pod}", "{namespace}/{pod}/{container}"
        routes = [
            web.get("/healthz", self._checked(_healthy)),
            web.get("/metrics/resource", self._checked(self._metrics)),
            web.get(f"/containerLogs/{container}", self._checked(self._logs)),
            *self._streams("exec", container, self._exec),
            *self._streams("attach", container, self._attach),
            *self._streams("portForward", pod, self._port_forward),
        ]
        async with serving(routes, address, port, tls=tls) as bound:
            yield bound

    def _streams(self, name: str, path: str, handler: Handler) -> list[web.RouteDef]:
        """Return the routes of a stream; the pod's UID may follow its name."""
        with_uid = path.replace("{pod}", "{pod}/{uid}")
        return [
            web.route(method, f"/{name}/{each}", self._checked(handler))
            for each in (path, with_uid)
            for method in ("GET", "POST")
        ]

    def _checked(self, handler: Handler) -> Handler:
        """Return `handler` behind the question whether the caller may call it."""

        async def checked(request: web.Request) -> web.StreamResponse:
            try:
                await self._check(request)
                return await handler(request)
            except KubeError as error:
                raise web.HTTPServiceUnavailable(text=f"the API server: {error}") from error
            except RuntimeCallError as error:
                raise web.HTTPInternalServerError(text=str(error)) from error

        return checked

    async def _check(self, request: web.Request) -> None:
        callers, caller = self._served.callers, await self._caller(request)
        if caller is None:
            raise web.HTTPUnauthorized(text="Unauthorized")
        verb, subresources = verb_of(request.method), subresources_of(request.path)
        if not await callers.may(caller, verb, subresources):
            wanted = f"resource=nodes, subresource(s)=[{' '.join(subresources)}]"
            raise web.HTTPForbidden(text=f"Forbidden (user={caller.name}, verb={verb}, {wanted})")

    async def _caller(self, request: web.Request) -> Caller | None:
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        if (found := caller_of(certificate)) is not None:
            return found
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return None
        return await self._served.callers.known(token.strip())

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        try:
            query = logs.query_of(request.query, self._served.now_s())
        except logs.LogQueryError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        pod, name = self._pod(request), request.match_info["container"]
        found = await self._containers(pod, name)
        if query.previous:
            found = found[1:]
        if not found:
            kind = "previous terminated container" if query.previous else "container"
            rest = "not found" if query.previous else "is waiting to start: ContainerCreating"
            raise web.HTTPBadRequest(text=f'{kind} "{name}" in pod "{_name(pod)}" {rest}')
        status = await self._served.runtime.container_status(found[0].id)

        async def goes_on() -> bool:
            is_read = request.transport is not None and not request.transport.is_closing()
            return is_read and await self._runs(status.id)

        pieces = logs.read(Path(status.log_path), query, goes_on)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        try:
            first = await anext(pieces, b"")
            await response.prepare(request)
            await response.write(first)
            async for piece in pieces:
                await response.write(piece)
        except FileNotFoundError as error:
            raise web.HTTPInternalServerError(text=f"{error.filename} does not exist") from error
        await response.write_eof()
        return response

    async def _runs(self, container_id: str) -> bool:
        try:
            status = await self._served.runtime.container_status(container_id)
        except RuntimeCallError as error:
            if error.is_not_found:
                return False
            raise
        return status.state in (cri.CONTAINER_RUNNING, cri.CONTAINER_CREATED)

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        streams = _wanted(request.query)
        command = request.query.getall("command", [])
        call = cri.ExecRequest(container_id=await self._running(request), cmd=command, **streams)
        return await tunnel.connect(request, await self._served.runtime.exec_url(call))

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        call = cri.AttachRequest(
            container_id=await self._running(request), **_wanted(request.query)
        )
        return await tunnel.connect(request, await self._served.runtime.attach_url(call))

    async def _port_forward(self, request: web.Request) -> web.StreamResponse:
        pod = self._pod(request)
        ready = [
            one.id
            for one in await self._served.runtime.sandboxes(pod.metadata.uid)
            if one.state == cri.SANDBOX_READY
        ]
        if not ready:
            raise web.HTTPInternalServerError(text=f'pod "{_name(pod)}" is not running')
        try:
            ports = [int(text) for text in request.query.getall("port", [])]
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"a port is not a number: {error}") from error
        call = cri.PortForwardRequest(pod_sandbox_id=ready[0], port=ports)
        return await tunnel.connect(request, await self._served.runtime.port_forward_url(call))

    async def _metrics(self, _request: web.Request) -> web.StreamResponse:
        runtime = self._served.runtime
        node = None
        try:
            node = resourcemetrics.node_use(self._served.proc)
        except (OSError, KeyError) as error:
            log.warning("what the node uses cannot be read", error=str(error))
        containers = await runtime.container_uses()
        pods = await runtime.pod_uses()
        starts = {}
        for one in containers:
            try:
                status = await runtime.container_status(one.attributes.id)
            except RuntimeCallError as error:
                if not error.is_not_found:
                    raise
            else:
                starts[status.id] = status.started_at
        uses = resourcemetrics.Uses(node, containers, pods, starts)
        return web.Response(body=resourcemetrics.exposition(uses), headers={"Content-Type": _TEXT})

    def _pod(self, request: web.Request) -> RunPod:
        """Return the pod of a path; raises HTTPNotFound."""
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        pod = self._served.find(namespace, name)
        uid = request.match_info.get("uid")
        if pod is None or (uid is not None and pod.metadata.uid != uid):
            raise web.HTTPNotFound(text=f'pod "{name}" does not exist')
        return pod

    async def _containers(self, pod: RunPod, name: str) -> list[cri.Container]:
        """Return the containers of a pod with a name, the newest first; raises HTTPNotFound."""
        spec = pod.spec
        if name not in {one.name for one in (*(spec.init_containers or ()), *spec.containers)}:
            raise web.HTTPNotFound(text=f'container "{name}" not found in pod "{_name(pod)}"')
        found = [
            one
            for one in await self._served.runtime.containers(pod.metadata.uid)
            if one.labels.get(labels.CONTAINER) == name
        ]
        return sorted(found, key=lambda one: one.created_at, reverse=True)

    async def _running(self, request: web.Request) -> str:
        """Return the id of the container of a path; raises HTTPNotFound."""
        name = request.match_info["container"]
        for one in await self._containers(self._pod(request), name):
            if one.state == cri.CONTAINER_RUNNING:
                return one.id
        raise web.HTTPNotFound(text=f'container not found ("{name}")')


async def _healthy(_request: web.Request) -> web.StreamResponse:
    return web.Response(text="ok")


def _wanted(parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the streams that a caller wants; raises HTTPBadRequest for none."""
    tty, stdin, stdout, stderr = (
        parameters.get(name, "") in _TRUE for name in ("tty", "input", "output", "error")
    )
    if not (stdin or stdout or stderr):
        raise web.HTTPBadRequest(text="you must specify at least 1 of stdin, stdout, stderr")
    # A terminal has one stream for both.
    return {"tty": tty, "stdin": stdin, "stdout": stdout, "stderr": stderr and not tty}


def _name(pod: RunPod) -> str:
    return pod.metadata.name
