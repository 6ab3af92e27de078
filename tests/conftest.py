"""Fixtures that every test folder shares: one control plane a run, one namespace a test."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from bindery.controlplane import find
from bindery.controlplane.components import Components
from bindery.controlplane.install import Installation, install
from bindery.controlplane.plane import ControlPlane


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A ready API server, shared by the whole run; its logs are in `state_dir/logs`."""
    options = find.Options(state_dir=tmp_path_factory.mktemp("controlplane"))
    with find.find(options, report=print) as plane:
        yield plane


@pytest.fixture(scope="session")
def admin_kubeconfig(control_plane: ControlPlane) -> Path:
    """The administrator's kubeconfig."""
    return control_plane.admin_kubeconfig


@pytest.fixture(scope="session")
def installation(control_plane: ControlPlane) -> Installation:
    """The chart's resources: kinds, roles, and a kubeconfig for each component."""
    return install(control_plane)


@pytest.fixture
def components(installation: Installation) -> Iterator[Components]:
    """Starts schedulers, binders and hollow nodes for one test, and stops them after it."""
    with Components(installation) as components:
        yield components


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A fresh namespace in which pods can be created; it is deleted afterwards."""
    name = f"test-{secrets.token_hex(4)}"
    control_plane.kubectl("create", "namespace", name)
    # Pods are refused before the namespace has its default ServiceAccount; the controller that
    # makes it takes half a minute to come back after a test has restarted the API server.
    control_plane.kubectl(
        "wait",
        "--for=create",
        "serviceaccount/default",
        f"--namespace={name}",
        "--timeout=120s",
        timeout_s=150.0,
    )
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")
