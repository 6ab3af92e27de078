"""Agents to start and a cluster to look at."""

from collections.abc import Iterator

import pytest

from devcluster.components import Components
from devcluster.plane import ControlPlane
from tests.nodeagent.hollowagents import Agents, Cluster


@pytest.fixture
def agents(components: Components, control_plane: ControlPlane) -> Iterator[Agents]:
    agents = Agents(components, control_plane)
    yield agents
    agents.remove_nodes()


@pytest.fixture
def cluster(control_plane: ControlPlane, namespace: str) -> Cluster:
    return Cluster(control_plane, namespace)
