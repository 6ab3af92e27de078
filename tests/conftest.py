"""Fixtures that every test folder shares: one control plane a run, one namespace a test."""

import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from administrator import Administrator, Plain
from commandline import CommandLine
from hypothesis import settings

from bindery.controlplane import find
from bindery.controlplane.components import Components
from bindery.controlplane.install import Installation, install
from bindery.controlplane.plane import ControlPlane
from bindery.kube.client import Client
from bindery.kube.errors import AlreadyExistsError
from bindery.kube.resources import NAMESPACES, Resource

SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, Plain)

# Hypothesis' own profile for CI repeats the same examples in every run. Here each run explores, and
# what fails is printed as a decorator with which it can be repeated anywhere.
settings.register_profile("exploring", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("exploring")


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
def command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """`bindery` in this process."""
    return CommandLine(monkeypatch, capsys)


@pytest.fixture(scope="session")
def administrator(control_plane: ControlPlane) -> Administrator:
    """May do everything, from tests and fixtures that are not asynchronous."""
    return Administrator(control_plane.admin_kubeconfig)


@pytest.fixture
def namespace(administrator: Administrator) -> Iterator[str]:
    """A fresh namespace in which pods can be created; it is deleted afterwards."""
    name = f"test-{secrets.token_hex(4)}"
    administrator(lambda client: _create_namespace(client, name))
    yield name
    administrator(lambda client: client.delete(NAMESPACES, name))


async def _create_namespace(client: Client, name: str) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    # Pods are refused before the namespace has its default ServiceAccount. The controller that
    # makes it takes half a minute to come back after a test has restarted the API server.
    with suppress(AlreadyExistsError):
        await client.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, name)
