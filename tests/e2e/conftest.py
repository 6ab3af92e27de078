"""Processes that a whole module shares, and each test's own corner of the cluster.

A module that kills schedulers takes the shared binder only, and the other way round: within one
module a component is either shared or started by the tests.
"""

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bindery.kube.client import Client
from devcluster.components import Component, Components
from devcluster.install import Installation
from devcluster.plane import ControlPlane
from fakes.reservations import GpuDevicePlugins
from tests import readers
from tests.e2e.sabotage import PLUGIN_DIRECTORY
from tests.e2e.support import Corner, Observer, binder_configuration, scheduler_configuration


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client.connect(control_plane.admin_kubeconfig, user_agent="bindery-test/0") as made:
        yield made


@pytest.fixture(scope="module")
def pool() -> str:
    """The node pool of the module's schedulers and nodes."""
    return f"e2e-{secrets.token_hex(4)}"


@pytest.fixture(scope="module")
def reader(
    control_plane: ControlPlane,
    installation: Installation,  # brings the kinds
    pool: str,
) -> Iterator[Path]:
    """The kubeconfig of a user with the chart's role for readers and nothing else."""
    with readers.reader(control_plane, pool) as path:
        yield path


@pytest.fixture(scope="module")
def module_components(installation: Installation) -> Iterator[Components]:
    with Components(installation) as components:
        yield components


@pytest.fixture(scope="module")
def scheduler(module_components: Components, pool: str) -> Component:
    return module_components.start_scheduler(scheduler_configuration(pool)).wait_ready()


@pytest.fixture(scope="module")
def binder(module_components: Components) -> Component:
    return module_components.start_binder(binder_configuration()).wait_ready()


@pytest.fixture
async def corner(client: Client, namespace: str, pool: str) -> AsyncIterator[Corner]:
    corner = Corner(client, namespace, pool)
    yield corner
    await corner.clean()


@pytest.fixture
async def observer(corner: Corner) -> AsyncIterator[Observer]:
    """Watches the pods all the time; at the end none may ever have had two nodes."""
    async with Observer(corner).watch() as observer:
        yield observer
    observer.check()


@pytest.fixture
def plugin_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes that are started from now on find the plugin beside these tests."""
    monkeypatch.setenv("PYTHONPATH", str(PLUGIN_DIRECTORY))


@pytest.fixture
async def stand_in(corner: Corner) -> AsyncIterator[GpuDevicePlugins]:
    async with GpuDevicePlugins(corner.client, f"{corner.namespace}-").play() as stand_in:
        yield stand_in
