"""Fixtures that every test folder shares: one control plane a run, one namespace a test."""

import logging
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog
from xdist.remote import Producer

from devcluster import find
from devcluster.components import Components
from devcluster.install import Installation, install
from devcluster.plane import ControlPlane
from tests.administrator import Administrator
from tests.commandline import CommandLine
from tests.sizes import IS_LONG, PROPERTY_TIMEOUT_S, load_profile
from tests.spreading import Spread, longest_first, spread

_LAST_LINES = 12
_NOT_BINDERYS = {"kube-apiserver", "kube-controller-manager", "etcd"}
load_profile()
# A shell's background job ignores SIGINT, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)  # there is none in a run without workers
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Spread:
    return spread(config, log)


@pytest.hookimpl(trylast=True)  # after hypothesis has marked what is its own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        uses_control_plane = "control_plane" in getattr(item, "fixturenames", ())
        if uses_control_plane and not item.get_closest_marker("e2e"):
            raise pytest.UsageError(f"{item.nodeid} uses the control plane: mark it with e2e")
        long = item.get_closest_marker("long")
        if long is not None and not IS_LONG:
            item.add_marker(pytest.mark.skip(reason=f"{long.args[0]}: make test-long"))
        if item.get_closest_marker("hypothesis") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PROPERTY_TIMEOUT_S))
    longest_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of the logs that were written meanwhile to the report of a failed test."""
    report = yield
    plane = getattr(item, "funcargs", {}).get("control_plane")
    if report.failed and isinstance(plane, ControlPlane):
        for log in sorted((plane.state_dir / "logs").glob("*.log")):
            if log.stat().st_mtime >= call.start and log.stem not in _NOT_BINDERYS:
                lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
                report.sections.append((log.name, "\n".join(lines[-_LAST_LINES:])))
    return report


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Undo what a test, or a command in its process, has set: its stream closes with the test."""
    root = logging.getLogger()
    configuration, handlers, level = structlog.get_config(), root.handlers[:], root.level
    yield
    structlog.configure(**configuration)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A ready API server, shared by the whole run; its logs are in `state_dir/logs`."""
    # Most nodes of the tests have no agent. On a busy machine a test may outlive Kubernetes' grace.
    state_dir = tmp_path_factory.mktemp("controlplane")
    options = find.Options(state_dir=state_dir, node_grace_s=24 * 3600)
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
    with administrator.fresh_namespace() as name:
        yield name
