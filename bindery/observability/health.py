"""The HTTP server beside each component: /healthz, /readyz and /metrics.

Started by each component around its main loop; asked by the kubelet's probes and by Prometheus.
Checks are plain functions, asked anew for each request. The invariant: a check that fails or
raises makes its answer 503 and is named in it; it never takes the server down.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType, TracebackType
from typing import Final, Self

from aiohttp import web
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder

Checks = Mapping[str, Callable[[], bool]]

_NONE: Final[Checks] = MappingProxyType({})


class HealthServer:
    """Serves while it is entered as an async context manager.

    `checks` decide about /readyz: whether the component does its work. `liveness` decide about
    /healthz: whether only a restart can help. An API server that is down is no reason for a
    restart, so there are few of these; without any, an event loop that answers is alive.
    Without `host` it listens on every address; but port 0, which takes a free port, only on
    loopback, as every address would mean several ports.
    """

    def __init__(
        self,
        port: int,
        checks: Checks,
        *,
        liveness: Checks = _NONE,
        host: str | None = None,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        self.port = port
        """The port that it listens on, once entered."""
        self._checks = checks
        self._liveness = liveness
        self._host = host if host is not None or port else "127.0.0.1"
        self._registry = registry
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return _answer(self._liveness)

    async def _readyz(self, _request: web.Request) -> web.Response:
        return _answer(self._checks)

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        # Not in a thread: collectors may read what belongs to the event loop.
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})


def _answer(checks: Checks) -> web.Response:
    failures = [failure for name, check in checks.items() if (failure := _failure(name, check))]
    if failures:
        return web.Response(status=503, text="\n".join(failures) + "\n")
    return web.Response(text="ok\n")


def _failure(name: str, check: Callable[[], bool]) -> str | None:
    try:
        return None if check() else f"{name}: failing"
    except Exception as error:  # whatever a check raises, it has failed
        return f"{name}: {type(error).__name__}: {error}"
