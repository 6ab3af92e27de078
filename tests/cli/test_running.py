"""The commands of the components: the same options, and the same ends when they cannot start."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from bindery.api.names import API_VERSION
from bindery.cli.errors import CommandError, ExitCode
from bindery.cli.processes import running
from bindery.observability.listening import ListenError
from tests.commandline import CommandLine

SERVER = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: me, user: {token: t}}]
"""
LEADERS = ["scheduler", "binder", "grouper"]
COMPONENTS = [*LEADERS, "webhook", "nodeagent"]
NODES = {"nodeagent": ["--hollow=1"]}


@pytest.mark.parametrize("component", COMPONENTS)
def test_an_unknown_log_level_is_bad_input(command_line: CommandLine, component: str) -> None:
    done = command_line(component, "run", "--log-level=loud", *NODES.get(component, []))

    assert done.returncode == ExitCode.BAD_INPUT
    assert "log level 'loud' is not one of debug, info" in done.stderr


@pytest.fixture
def unprepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the logs and the garbage collector of this process as they are."""
    monkeypatch.setattr(running, "prepare", lambda _component, _level: None)


@pytest.mark.usefixtures("unprepared")
@pytest.mark.parametrize("component", LEADERS)
def test_an_unusable_kubeconfig_is_a_one_line_error(
    command_line: CommandLine, tmp_path: Path, component: str
) -> None:
    done = command_line(component, "run", f"--kubeconfig={tmp_path / 'none'}")

    assert done.returncode == ExitCode.NO_CLUSTER
    assert done.stderr.startswith("bindery: kubeconfig ")
    assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("unprepared")
@pytest.mark.parametrize("component", [*LEADERS, "nodeagent"])
def test_a_port_in_use_is_bad_input(
    command_line: CommandLine, tmp_path: Path, component: str
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(SERVER)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = [f"--kubeconfig={kubeconfig}", f"--health-port={port}"]
        done = command_line(component, "run", *ports, *NODES.get(component, []))

    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stderr.startswith(f"bindery: cannot listen on 127.0.0.1 port {port}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("component", "mistake", "line"),
    [
        ("scheduler", "cycle: 1", 3),
        ("scheduler", "plugins:\n- name: nobody", 4),
        ("binder", "binds: 1", 3),
        ("binder", "plugins:\n- name: nobody", 4),
        ("grouper", "rows: 1", 3),
    ],
)
def test_an_invalid_configuration_is_an_error_with_its_file_and_line(
    command_line: CommandLine, tmp_path: Path, component: str, mistake: str, line: int
) -> None:
    file = tmp_path / "configuration.yaml"
    kind = f"{component.capitalize()}Configuration"
    file.write_text(f"apiVersion: {API_VERSION}\nkind: {kind}\n{mistake}\n")

    done = command_line(component, "run", f"--config={file}")

    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stderr.startswith(f"{file}:{line}: ")


def test_a_port_error_is_an_error_of_the_command_line() -> None:
    async def work() -> None:
        raise ListenError("127.0.0.1", 80, PermissionError(13, "Permission denied"))

    with pytest.raises(CommandError, match="port 80: Permission denied") as error:
        running.run(work())

    assert error.value.code is ExitCode.BAD_INPUT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_work_cleanly(number: signal.Signals) -> None:
    ends: list[str] = []

    async def work() -> None:
        os.kill(os.getpid(), number)
        try:
            await asyncio.sleep(60)
        finally:
            ends.append("clean")

    running.run(running.until_stopped(work()))

    assert ends == ["clean"]


def test_each_start_has_a_different_identity() -> None:
    one, two = running.new_identity(), running.new_identity()

    assert one != two
    assert one.startswith(f"{socket.gethostname()}_{os.getpid()}_")
