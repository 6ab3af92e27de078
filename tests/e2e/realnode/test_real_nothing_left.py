"""A launcher of real nodes leaves nothing on the machine, regardless of how it ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from devcluster.realnode import cgroups, machine
from tests.required import lacking
from tests.sizes import IS_LONG

pytestmark = pytest.mark.e2e

LAUNCHER = Path(__file__).with_name("launcher.py")
_WAIT_S = 240.0


@pytest.fixture(autouse=True)
def inside() -> None:
    """These tests look at the machine from outside."""
    for reason in machine.lacks():
        lacking(reason, part="realnode")


def left_by(launcher: int, directory: Path) -> list[str]:
    """Return what is left of a launcher and its nodes: cgroups, processes and their mounts."""
    trees = [str(path) for path in cgroups.trees() if f"bindery-{launcher}-" in path.name]
    return [*trees, *left_of(directory)]


def left_of(directory: Path) -> list[str]:
    """Return the processes and mounts that name a path below `directory`.

    Mounts name the directory of the node, also those in the namespaces of its containers.
    """
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        for file in ("cmdline", "mountinfo"):
            try:
                text = (process / file).read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it ended just now
            found += [
                f"{process.name}: {line}" for line in text.splitlines() if str(directory) in line
            ]
    return found


def wait_until(holds: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + _WAIT_S
    while not holds():
        assert time.monotonic() < deadline_s, what()
        time.sleep(0.2)


ENDS = {
    "stopped": (signal.SIGTERM, "running"),
    "killed": (signal.SIGKILL, "running"),
    "killed while a node starts": (signal.SIGKILL, "starting the node"),
    "killed while the API server starts": (signal.SIGKILL, "starting kube-apiserver"),
}


@pytest.mark.parametrize("end", list(ENDS) * 5 if IS_LONG else list(ENDS)[:1])
def test_a_launcher_leaves_nothing_when_it_ends(tmp_path: Path, end: str) -> None:
    how, until = ENDS[end]
    command = [sys.executable, str(LAUNCHER), str(tmp_path)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as launcher:
        assert launcher.stdout is not None
        lines = []
        for line in launcher.stdout:
            lines.append(line)
            if until in line:
                break
        assert launcher.poll() is None, lines
        assert left_by(launcher.pid, tmp_path)
        launcher.send_signal(how)
        launcher.wait(timeout=_WAIT_S)

        def what_is_left() -> list[str]:
            cgroups.remove_abandoned()  # as the next launcher does
            return left_by(launcher.pid, tmp_path)

        wait_until(lambda: not what_is_left(), what_is_left)
