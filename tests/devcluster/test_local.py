"""The local control plane, and its processes."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from devcluster.errors import ControlPlaneError, ProcessError
from devcluster.plane import ControlPlane
from devcluster.processes import (
    Command,
    Process,
    Record,
    is_recorded_running,
    stop_recorded,
)

SLEEP = ["/bin/sh", "-c", "echo started; exec sleep 60"]


def wait_for_end(record: Record, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while is_recorded_running(record):
        assert time.monotonic() < deadline, f"{record} still runs"
        time.sleep(0.02)


@pytest.mark.e2e
def test_rbac_is_enabled(control_plane: ControlPlane, namespace: str) -> None:
    account = f"--as=system:serviceaccount:{namespace}:default"

    with pytest.raises(ControlPlaneError, match="forbidden"):
        control_plane.kubectl("get", "nodes", account)


@pytest.mark.e2e
def test_objects_are_kept_after_a_restart_of_the_api_server(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.kubectl("create", "configmap", "kept", f"--namespace={namespace}")

    control_plane.restart_api_server()

    names = control_plane.kubectl("get", "configmaps", "-o", "name", f"--namespace={namespace}")
    assert "configmap/kept" in names.split()


@pytest.mark.e2e
def test_an_error_of_kubectl_is_raised_with_its_message(control_plane: ControlPlane) -> None:
    with pytest.raises(ControlPlaneError, match='"no-such-thing" not found'):
        control_plane.kubectl("get", "namespace", "no-such-thing")


def test_a_tethered_process_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from devcluster.processes import Command, Process\n"
        f"child = Process(Command('child', {SLEEP!r}, Path({str(tmp_path / 'log')!r})),"
        " tethered=True)\n"
        "child.wait_until(lambda: b'started' in child.command.log.read_bytes(), 'started', 10)\n"
        "record = child.record()\n"
        "print(record.pid, record.started, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid, started = parent.stdout.readline().decode().split()
        record = Record("child", int(pid), started)
        assert is_recorded_running(record)

        parent.kill()

    wait_for_end(record)


def test_a_tethered_process_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    command = Command("child", SLEEP, tmp_path / "log")
    with ThreadPoolExecutor(1) as thread:
        child = thread.submit(Process, command, tethered=True).result()

    with pytest.raises(ProcessError, match=r"is still running after"):
        child.wait(timeout_s=0.5)

    child.kill()


def test_a_recorded_process_is_stopped_by_its_pid(tmp_path: Path) -> None:
    process = Process(Command("sleep", SLEEP, tmp_path / "log"), tethered=False)
    record = process.record()

    assert stop_recorded(record)

    assert process.wait(timeout_s=60) == -signal.SIGTERM
    assert not stop_recorded(record)


def test_a_pid_reused_by_another_process_is_not_killed() -> None:
    record = Record("gone", os.getpid(), "1")

    assert not stop_recorded(record)


def test_a_process_that_ends_before_it_is_ready_shows_its_log(tmp_path: Path) -> None:
    command = Command("broken", ["/bin/sh", "-c", "echo no such flag; exit 3"], tmp_path / "log")
    process = Process(command, tethered=True)

    with pytest.raises(ProcessError, match=r"broken: ended with exit code 3 .*(?s:.*)no such flag"):
        process.wait_until(lambda: False, "ready", timeout_s=10)
