"""What the binder's tests share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from bindery.api.configuration import BinderConfiguration
from devcluster.components import Component, Components
from devcluster.install import Installation
from devcluster.plane import ControlPlane
from tests.administrator import Administrator
from tests.binder.bindercluster import ALONE, Cluster, Gate
from tests.sharedbinder import SharedBinder


@pytest.fixture(autouse=True, scope="session")
def quiet_logs() -> None:
    """Keep thousands of generated outcomes out of the report of a failing test."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())


@pytest.fixture
def cluster(
    control_plane: ControlPlane, administrator: Administrator, namespace: str
) -> Iterator[Cluster]:
    """A namespace of the test's own, with nodes that are removed afterwards."""
    cluster = Cluster(control_plane, administrator, namespace)
    yield cluster
    cluster.remove_nodes()


@pytest.fixture(scope="module")
def shared_binder(installation: Installation) -> Iterator[SharedBinder]:
    with Components(installation) as components:
        yield SharedBinder(components)


@pytest.fixture
def share_binder(shared_binder: SharedBinder) -> Callable[..., None]:
    """Lets the module's binder run, by default without an election."""

    def share(configuration: BinderConfiguration | None = None) -> None:
        shared_binder.run(configuration or BinderConfiguration(leader_election=ALONE))

    return share


@pytest.fixture
def start_binder(components: Components, shared_binder: SharedBinder) -> Callable[..., Component]:
    """Starts a binder for one test, by default without an election, and waits until it is ready."""
    shared_binder.stop()

    def start(
        configuration: BinderConfiguration | None = None, *, name: str = "binder"
    ) -> Component:
        chosen = configuration or BinderConfiguration(leader_election=ALONE)
        return components.start_binder(chosen, name=name).wait_ready()

    return start


@pytest.fixture
def hold_gang(
    cluster: Cluster, start_binder: Callable[..., Component], gate: Gate
) -> Callable[..., Component]:
    """Begins a gang and returns its binder, which stands still at a step of the pod gang-1."""

    def hold(step: str = "pre_bind", *, size: int = 2) -> Component:
        cluster.add_nodes(size + 1)
        bindings = cluster.add_pods("gang", size)
        gate.hold(step, "gang-1")
        binder = start_binder(gate.configuration())
        cluster.create(cluster.request("gang", bindings))
        gate.wait_at(binder, step, "gang-1")
        return binder

    return hold


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The plugin with gates, where the binder's process finds it."""
    gate = Gate(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(gate.install()))
    return gate
