"""A cluster for one node with an agent alone, and the other side of its calls."""

import sys
from collections.abc import Iterator
from typing import Final

import pytest

from devcluster import checkout
from devcluster.realnode import agentnode
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.node import RealNode
from devcluster.realnode.plane import RealControlPlane
from tests.e2e.realnode.blows import otherside
from tests.nodeagent.volumes.namespaces import require_loop_devices
from tests.required import demand_real_nodes

_SETTINGS: Final = (
    "cpuManagerPolicy=static",
    "reservedSystemCPUs='0'",
    "systemReserved.memory=100Mi",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Without nodes."""
    demand_real_nodes()
    with RealCluster(tmp_path_factory.mktemp("blows"), print) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def control_plane(cluster: RealCluster) -> RealControlPlane:
    return cluster.control_plane


@pytest.fixture(scope="module")
def node(cluster: RealCluster) -> Iterator[RealNode]:
    """A node with an agent and the other side."""
    require_loop_devices()
    options = [word for setting in _SETTINGS for word in ("--set", f"kubelet.{setting}")]
    services = {"otherside": _script()}
    with agentnode.added(cluster, 1, *options, services=services, runtime=otherside.SOCKET) as node:
        yield node


def _script() -> str:
    """Return the script that runs the other side."""
    command = f"exec {sys.executable} -P -m {otherside.__name__}"
    return f"export PYTHONPATH={checkout.ROOT}\n{command}"
