"""A cluster for one node with an agent alone."""

from collections.abc import Iterator

import pytest

from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.plane import RealControlPlane
from tests.required import demand_real_nodes


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Without nodes."""
    demand_real_nodes()
    with RealCluster(tmp_path_factory.mktemp("blows"), print) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def control_plane(cluster: RealCluster) -> RealControlPlane:
    return cluster.control_plane
