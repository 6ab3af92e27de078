"""Carries out probes and hooks: commands, requests, connections, and calls of the health service.

Source: the kubelet's `prober` and `lifecycle/handlers.go`, Kubernetes 1.36.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import grpc

from bindery import __version__
from bindery.nodeagent.containers.errors import RuntimeCallError
from bindery.nodeagent.containers.podspec import (
    GrpcAction,
    Hook,
    HttpGetAction,
    ProbeSpec,
    RunContainer,
)
from bindery.nodeagent.containers.runtime import Runtime

_MOST_OUTPUT: Final = 10 * 1024
_HEALTH: Final = "/grpc.health.v1.Health/Check"
_SERVING: Final = 1
_AGENTS: Final = "kube-probe/1.36"
_LONGEST_HOOK_S: Final = 3600.0


@dataclass(frozen=True)
class CheckOutcome:
    """The result of a probe or hook."""

    success: bool
    text: str = ""


class PortNameError(Exception):
    """A port is named that the container does not have."""


@dataclass(frozen=True)
class Target:
    """A running container. `address`: of its pod."""

    container: RunContainer
    id: str
    address: str

    def port(self, wanted: int | str) -> int:
        """Return the number of a port.

        Raises:
            PortNameError: no port has this name.
        """
        if isinstance(wanted, int):
            return wanted
        if wanted.isdigit():
            return int(wanted)
        for one in self.container.ports or ():
            if one.name == wanted:
                return one.container_port
        raise PortNameError(f"couldn't find port: {wanted}")


class Checks:
    """Carries out probes and hooks through `runtime` and the network of the node."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def probe(self, spec: ProbeSpec, target: Target) -> CheckOutcome:
        """Carry out a probe; raises RuntimeCallError if the runtime could not."""
        timeout_s = float(spec.timeout_seconds)
        try:
            if spec.exec is not None:
                return await self._execute(spec.exec.command, target, timeout_s)
            if spec.http_get is not None:
                return await _get(spec.http_get, target, timeout_s, _AGENTS)
            if spec.tcp_socket is not None:
                host = spec.tcp_socket.host or target.address
                return await _connect(host, target.port(spec.tcp_socket.port), timeout_s)
            if spec.grpc is not None:
                return await _ask_health(spec.grpc, target, timeout_s)
        except PortNameError as error:
            return CheckOutcome(success=False, text=str(error))
        return CheckOutcome(success=True)

    async def hook(
        self, hook: Hook, target: Target, timeout_s: float = _LONGEST_HOOK_S
    ) -> CheckOutcome:
        """Carry out a hook; all failures are its outcome."""
        try:
            if hook.exec is not None:
                return await self._execute(hook.exec.command, target, timeout_s)
            if hook.http_get is not None:
                agent = f"bindery-nodeagent/{__version__}"
                return await _get(hook.http_get, target, timeout_s, agent)
            if hook.sleep is not None:
                await asyncio.sleep(min(hook.sleep.seconds, timeout_s))
        except (PortNameError, RuntimeCallError) as error:
            return CheckOutcome(success=False, text=str(error))
        return CheckOutcome(success=True)

    async def _execute(self, command: list[str], target: Target, timeout_s: float) -> CheckOutcome:
        try:
            answer = await self._runtime.execute(target.id, command, timeout_s)
        except RuntimeCallError as error:
            if error.code is grpc.StatusCode.DEADLINE_EXCEEDED:
                return CheckOutcome(success=False, text=f"command timed out after {timeout_s:g}s")
            raise
        output = (answer.stdout + answer.stderr)[:_MOST_OUTPUT].decode(errors="replace")
        return CheckOutcome(answer.exit_code == 0, output)


def _url(action: HttpGetAction, target: Target) -> str:
    host = action.host or target.address
    shown = f"[{host}]" if ":" in host else host
    parts = urlsplit(action.path)
    path = parts.path if parts.path.startswith("/") else f"/{parts.path}"
    scheme = action.scheme.lower() or "http"
    return urlunsplit((scheme, f"{shown}:{target.port(action.port)}", path, parts.query, ""))


async def _get(action: HttpGetAction, target: Target, timeout_s: float, agent: str) -> CheckOutcome:
    headers: dict[str, str] = {"User-Agent": agent, "Accept": "*/*"}
    headers |= {one.name: one.value for one in action.http_headers or ()}
    url = _url(action, target)
    limit = aiohttp.ClientTimeout(total=timeout_s)
    try:
        # A fresh connection each time: the container may have been replaced.
        connector = aiohttp.TCPConnector(force_close=True, ssl=_unverified())
        async with (
            aiohttp.ClientSession(connector=connector, timeout=limit) as session,
            session.get(url, headers=headers) as answer,
        ):
            body = (await answer.content.read(_MOST_OUTPUT)).decode(errors="replace")
            if 200 <= answer.status < 400:
                return CheckOutcome(success=True, text=body)
            text = f"HTTP probe failed with statuscode: {answer.status}"
            return CheckOutcome(success=False, text=text)
    except TimeoutError:
        text = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        return CheckOutcome(success=False, text=f'Get "{url}": {text}')
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return CheckOutcome(success=False, text=f'Get "{url}": {error}')


def _unverified() -> ssl.SSLContext:
    """Return a context that takes any certificate: a probe asks its own container."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _connect(host: str, port: int, timeout_s: float) -> CheckOutcome:
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), timeout_s)
    except TimeoutError:
        return CheckOutcome(success=False, text=f"dial tcp {host}:{port}: i/o timeout")
    except OSError as error:
        return CheckOutcome(
            success=False, text=f"dial tcp {host}:{port}: {error.strerror or error}"
        )
    writer.close()
    return CheckOutcome(success=True)


async def _ask_health(action: GrpcAction, target: Target, timeout_s: float) -> CheckOutcome:
    """Call the standard health service; its two messages have one field each."""
    host = f"[{target.address}]" if ":" in target.address else target.address
    name = action.service.encode()
    request = b"" if not name else bytes((0x0A,)) + _varint(len(name)) + name
    async with grpc.aio.insecure_channel(f"{host}:{action.port}") as channel:
        try:
            answer: bytes = await channel.unary_unary(_HEALTH)(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            text = f"error: health rpc failed: {error.details()}"
            return CheckOutcome(success=False, text=text)
    # Field 1, an enumeration; the default value is not sent.
    status = answer[1] if len(answer) >= 2 and answer[0] == 0x08 else 0
    text = "" if status == _SERVING else f"service unhealthy (responded with {status})"
    return CheckOutcome(status == _SERVING, text)


def _varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*parts, number))
