"""Agents to start and a cluster to look at."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hollowagents import Agents, Cluster

from bindery.controlplane.install import Installation
from bindery.controlplane.plane import ControlPlane


@pytest.fixture
def agents(installation: Installation, tmp_path: Path) -> Iterator[Agents]:
    agents = Agents(installation, tmp_path)
    yield agents
    agents.stop()


@pytest.fixture
def cluster(control_plane: ControlPlane, namespace: str) -> Cluster:
    return Cluster(control_plane, namespace)
