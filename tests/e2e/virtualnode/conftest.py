"""A real node in a virtual machine: four CPUs in two NUMA zones, cgroup v2."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from devcluster.components import Component, Components
from devcluster.errors import BuildError
from devcluster.install import Installation, install
from devcluster.realnode import vm
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.configuration import SHARED, VirtualMachine
from devcluster.realnode.node import RealNode
from devcluster.realnode.plane import RealControlPlane
from tests.administrator import Administrator
from tests.e2e import besideservice
from tests.e2e.realnode import agentstorage
from tests.required import demand_real_nodes, lacking

DRIVER: Final = f"{SHARED}/driver"
"""A file for which the CSI driver of the node with a kubelet waits."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    demand_real_nodes("vm", vm.lacks())
    try:
        vm.kernel(print)
    except BuildError as error:
        lacking(str(error), part="vm")
    with RealCluster(tmp_path_factory.mktemp("virtualnode"), print) as cluster:
        services = {
            besideservice.SERVICE: besideservice.script("node-1"),
            "driver": f"until [ -e {DRIVER} ]; do sleep 1; done\n{agentstorage.service()}",
        }
        cluster.add_node(cluster.plan(1, machine=VirtualMachine(), services=services))
        yield cluster


@pytest.fixture(scope="session")
def node(cluster: RealCluster) -> RealNode:
    return cluster.nodes["node-1"]


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
    return module_components.start_scheduler().wait_ready()


@pytest.fixture(scope="module")
def binder(module_components: Components) -> Component:
    return module_components.start_binder().wait_ready()


@pytest.fixture(autouse=True)
def inside(control_plane: RealControlPlane) -> Iterator[None]:
    """Run each test, with what it starts, in the network of the node."""
    with control_plane.network.entered():
        yield
