"""`make demo-real`, as users run it: its output, the nodes that stay up, and their removal."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.realnode.test_real_nothing_left import left_of, wait_until
from tests.required import demand_real_nodes

pytestmark = pytest.mark.e2e

DEMO = [sys.executable, "-m", "devcluster.demo", "real"]
NAMESPACE = "--namespace=bindery-demo"


@pytest.fixture(autouse=True)
def inside() -> None:
    """These tests are outside of the nodes' network, as users are."""
    demand_real_nodes()


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    own = {"TMPDIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "COLUMNS": "200"}
    environment = {**os.environ, **own}
    yield environment
    demo(environment, "down")


def demo(environment: dict[str, str], command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.long("its chapters are tests of real nodes too")
def test_real_nodes_of_the_demo_are_usable_until_demo_down_removes_them(
    environment: dict[str, str], tmp_path: Path
) -> None:
    up = demo(environment, "up")
    assert up.returncode == 0, up.stdout + up.stderr
    again = demo(environment, "up")
    inside = [str(tmp_path / "bindery" / "demo-real" / "inside"), "kubectl"]
    run = [*inside, "exec", NAMESPACE, "probe", "--", "hostname"]
    options = ["--image=bindery.dev/busybox:1", "--restart=Never"]
    options += ["--labels=scheduling.bindery.dev/queue=research"]
    options += ['--overrides={"spec": {"schedulerName": "bindery"}}']
    probe = ["run", "probe", NAMESPACE, *options, "--", "sleep", "600"]
    subprocess.run([*inside, *probe], check=True, timeout=60)
    ready = ("wait", "--for=condition=Ready", "pod/probe", NAMESPACE, "--timeout=60s")
    subprocess.run([*inside, *ready], check=True, timeout=90)
    name = subprocess.run(run, check=True, capture_output=True, text=True, timeout=60).stdout
    down = demo(environment, "down")

    assert up.stdout.count("rank 0: mode fast") == 1
    assert "of GPU-" in up.stdout
    assert "went as it should" in up.stdout
    assert (again.returncode, "up already" in again.stdout) == (1, True)
    assert name == "probe\n"
    assert down.returncode == 0, down.stdout + down.stderr
    wait_until(lambda: not left_of(tmp_path), lambda: left_of(tmp_path))
    assert "is not up" in demo(environment, "down").stdout
