"""Two real nodes: kubelet with containerd, and Bindery's components beside them.

They are in a network namespace of their own. Each test runs inside it, so that its clients reach
the API server.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.components import Component, Components
from devcluster.install import Installation, install
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.plane import RealControlPlane
from devcluster.realnode.stack import services
from tests.administrator import Administrator
from tests.required import demand_real_nodes


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Two nodes, each with Kubernetes' sample device plugin and its test driver for claims."""
    demand_real_nodes()
    with RealCluster(tmp_path_factory.mktemp("realnodes"), print) as cluster:
        for number in (1, 2):
            cluster.add_node(cluster.plan(number, services=services(f"node-{number}")))
        yield cluster


@pytest.fixture(scope="session")
def control_plane(cluster: RealCluster) -> RealControlPlane:
    return cluster.control_plane


@pytest.fixture(scope="session")
def admin_kubeconfig(control_plane: RealControlPlane) -> Path:
    return control_plane.admin_kubeconfig


@pytest.fixture(scope="session")
def installation(control_plane: RealControlPlane) -> Installation:
    return install(control_plane)


@pytest.fixture(scope="session")
def administrator(control_plane: RealControlPlane) -> Administrator:
    return Administrator(control_plane.admin_kubeconfig)


@pytest.fixture(scope="module")
def pool() -> str:
    """The default pool: real nodes have no label."""
    return ""


@pytest.fixture(scope="module")
def scheduler(module_components: Components) -> Component:
    """With the configuration of the chart, as users have it."""
    return module_components.start_scheduler().wait_ready()


@pytest.fixture(scope="module")
def binder(module_components: Components) -> Component:
    return module_components.start_binder().wait_ready()


@pytest.fixture(autouse=True)
def inside(control_plane: RealControlPlane) -> Iterator[None]:
    """Run each test, with what it starts, in the network of the nodes."""
    with control_plane.network.entered():
        yield
