"""Clients of the shared API server, direct and through a proxy that breaks things."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bindery.kube.client import Client
from devcluster.plane import ControlPlane
from tests.kube.faultproxy import FaultProxy
from tests.kube.mirror import Aside


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client.connect(control_plane.admin_kubeconfig, user_agent="bindery-test/0") as made:
        yield made


@pytest.fixture
async def proxy(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(control_plane.admin_kubeconfig, tmp_path).serve() as serving:
        yield serving


@pytest.fixture
async def proxied(proxy: FaultProxy) -> AsyncIterator[Client]:
    async with Client.connect(
        proxy.kubeconfig, user_agent="bindery-test/0", request_timeout_s=10
    ) as made:
        yield made


@pytest.fixture(scope="session")
def _side_thread(control_plane: ControlPlane) -> Iterator[ThreadPoolExecutor]:
    # A tethered API server dies with the thread that started it: one thread for the whole run.
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def aside(_side_thread: ThreadPoolExecutor) -> Aside:
    """Run something blocking, such as a restart of the API server, beside the event loop."""

    async def run(blocking: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(_side_thread, blocking)

    return run
