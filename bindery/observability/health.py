"""The HTTP server beside each component: /healthz, /readyz and /metrics.

Started by each component around its main loop; asked by the kubelet's probes and by Prometheus.
Checks are plain functions, called for each request. The invariant: a check that fails or
raises makes its answer 503 and is named in it; it never takes the server down.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import Final, Self

from aiohttp import web
from prometheus_client import REGISTRY, CollectorRegistry, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from bindery.observability.listening import Listening, serving

disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations

Checks = Mapping[str, Callable[[], bool]]

_NONE: Final[Checks] = MappingProxyType({})


class HealthServer:
    """Serves while it is entered as an async context manager.

    `checks` decide about /readyz: whether the component does its work. `liveness` decide about
    /healthz: whether only a restart can help. An API server that is down is no reason for a
    restart, so there are few of these; without any, an event loop that answers is alive.

    Raises:
        ListenError: on entering, if a port cannot be listened on.
    """

    def __init__(
        self,
        listening: Listening,
        checks: Checks,
        *,
        liveness: Checks = _NONE,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        self.port = 0
        """The port of the probes, once entered."""
        self.metrics_port = 0
        """The port of the metrics, once entered."""
        self._listening = listening
        self._checks = checks
        self._liveness = liveness
        self._registry = registry
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        where = self._listening
        if where.health_port is None:
            return self
        probes = [web.get("/healthz", self._healthz), web.get("/readyz", self._readyz)]
        metrics = [web.get("/metrics", self._metrics)]
        async with AsyncExitStack() as stack:
            if where.metrics_port is None:
                self.port = await self._serve(stack, [*probes, *metrics], where.health_port)
                self.metrics_port = self.port
            else:
                self.port = await self._serve(stack, probes, where.health_port)
                self.metrics_port = await self._serve(stack, metrics, where.metrics_port)
            self._stack = stack.pop_all()
        return self

    async def _serve(self, stack: AsyncExitStack, routes: Sequence[web.RouteDef], port: int) -> int:
        return await stack.enter_async_context(serving(routes, self._listening.address, port))

    async def __aexit__(self, *_exception: object) -> None:
        await self._stack.aclose()

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
