"""The health server, over HTTP."""

import socket

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from bindery.observability.health import HealthServer
from bindery.observability.listening import ListenError, Listening


async def get(server: HealthServer, path: str, port: int = 0) -> tuple[int, str]:
    url = f"http://127.0.0.1:{port or server.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


def fail() -> bool:
    raise RuntimeError("no connection")


async def test_a_component_is_ready_if_its_checks_pass() -> None:
    async with HealthServer(Listening(0), {"watch": lambda: True}) as server:
        assert await get(server, "/readyz") == (200, "ok\n")
        assert await get(server, "/healthz") == (200, "ok\n")


async def test_failing_checks_are_listed_one_per_line() -> None:
    checks = {"pods": lambda: False, "nodes": lambda: True, "lease": fail}
    async with HealthServer(Listening(0), checks) as server:
        assert await get(server, "/readyz") == (
            503,
            "pods: failing\nlease: RuntimeError: no connection\n",
        )
        assert (await get(server, "/healthz"))[0] == 200, "not ready is not dead"


async def test_liveness_has_separate_checks() -> None:
    async with HealthServer(Listening(0), {}, liveness={"cycle": lambda: False}) as server:
        assert await get(server, "/healthz") == (503, "cycle: failing\n")
        assert await get(server, "/readyz") == (200, "ok\n")


async def test_a_check_runs_at_each_request() -> None:
    state = {"ready": False}
    async with HealthServer(Listening(0), {"x": lambda: state["ready"]}) as server:
        assert (await get(server, "/readyz"))[0] == 503
        state["ready"] = True
        assert (await get(server, "/readyz"))[0] == 200


async def test_metrics_are_served_in_the_text_format() -> None:
    registry = CollectorRegistry()
    Counter("bound_pods", "Pods.", registry=registry).inc(3)
    async with HealthServer(Listening(0), {}, registry=registry) as server:
        status, text = await get(server, "/metrics")

    assert status == 200
    assert "bound_pods_total 3.0" in text


async def test_the_server_listens_on_loopback_by_default() -> None:
    async with HealthServer(Listening(0), {}) as server:
        assert (await get(server, "/healthz"))[0] == 200
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", server.port))


async def test_metrics_with_a_separate_port_are_not_served_with_the_probes() -> None:
    async with HealthServer(Listening(0, metrics_port=0), {}) as server:
        assert (await get(server, "/metrics"))[0] == 404
        assert (await get(server, "/metrics", server.metrics_port))[0] == 200
        assert (await get(server, "/healthz", server.metrics_port))[0] == 404


async def test_a_port_in_use_is_named_and_earlier_ports_are_closed() -> None:
    async with HealthServer(Listening(0), {}) as first:
        with pytest.raises(ListenError, match=f"127.0.0.1 port {first.port}: .*in use"):
            async with HealthServer(Listening(0, metrics_port=first.port), {}):
                pass


def test_no_series_of_creation_times_are_exported() -> None:
    registry = CollectorRegistry()
    Counter("served", "Served.", registry=registry).inc()

    assert {s.name for family in registry.collect() for s in family.samples} == {"served_total"}
