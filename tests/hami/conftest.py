"""What HAMi's end-to-end tests share."""

from collections.abc import AsyncIterator, Callable

import pytest
from hamicluster import HamiCluster, configuration

from bindery.controlplane.components import Component, Components
from bindery.controlplane.plane import ControlPlane
from bindery.kube.client import Client
from bindery.kube.resources import NODES


@pytest.fixture
async def hami(control_plane: ControlPlane, namespace: str) -> AsyncIterator[HamiCluster]:
    """A namespace of the test's own, with nodes that are removed afterwards."""
    connecting = Client.connect(control_plane.admin_kubeconfig, user_agent="test")
    async with connecting as client:
        cluster = HamiCluster(client, namespace)
        yield cluster
        for node in cluster.nodes:
            await client.delete(NODES, node)


@pytest.fixture
def start_binder(components: Components) -> Callable[..., Component]:
    """Starts a binder with the plugin `node_lock` and waits until it is ready."""

    def start(**arguments: float) -> Component:
        return components.start_binder(configuration(**arguments)).wait_ready()

    return start
