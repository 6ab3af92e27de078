"""What HAMi's end-to-end tests share."""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from bindery.kube.client import Client
from bindery.kube.objects.resources import NODES
from devcluster.components import Component, Components
from devcluster.install import Installation
from devcluster.plane import ControlPlane
from tests.hami.hamicluster import HamiCluster, configuration
from tests.sharedbinder import SharedBinder


@pytest.fixture
async def hami(control_plane: ControlPlane, namespace: str) -> AsyncIterator[HamiCluster]:
    """A namespace of the test's own, with nodes that are removed afterwards."""
    connecting = Client.connect(control_plane.admin_kubeconfig, user_agent="test")
    async with connecting as client:
        cluster = HamiCluster(client, namespace)
        yield cluster
        for node in cluster.nodes:
            await client.delete(NODES, node)


@pytest.fixture(scope="module")
def shared_binder(installation: Installation) -> Iterator[SharedBinder]:
    with Components(installation) as components:
        yield SharedBinder(components)


@pytest.fixture
def share_binder(shared_binder: SharedBinder) -> Callable[[], None]:
    """Lets the module's binder run, with the plugin `hami`."""
    return lambda: shared_binder.run(configuration())


@pytest.fixture
def start_binder(components: Components, shared_binder: SharedBinder) -> Callable[..., Component]:
    """Starts a binder with the plugin `hami` for one test and waits until it is ready."""
    shared_binder.stop()

    def start(**arguments: float) -> Component:
        return components.start_binder(configuration(**arguments)).wait_ready()

    return start
