"""`make demo`, as users run it: its output, and that it leaves no processes."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

DEMO = [sys.executable, "-m", "devcluster.demo"]


def command_lines(directory: Path) -> dict[int, str]:
    """The command lines of the processes that were given a file below `directory`, by id."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended just now
        if str(directory) in line:
            found[int(path.parent.name)] = line
    return found


def processes_of(directory: Path) -> list[str]:
    return list(command_lines(directory).values())


def process_id(directory: Path, words: str) -> int:
    """The id of the only process of the demo with these words in its command line."""
    [found] = [each for each, line in command_lines(directory).items() if f" {words} " in line]
    return found


def wait_until(check: Callable[[], bool], timeout_s: float = 240.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """State and temporary files go to the test's own directory."""
    own = {"TMPDIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), "COLUMNS": "200"}
    return {**os.environ, **own}


def demo(environment: dict[str, str], command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=420,
        check=False,
    )


def test_the_demo_shows_running_gangs_and_devices_and_two_waiting_gangs(
    environment: dict[str, str], tmp_path: Path
) -> None:
    result = demo(environment, "run")

    assert result.returncode == 0, result.stdout + result.stderr
    requests = [line.split() for line in result.stdout.splitlines() if " Succeeded " in line]
    [gang] = [words for words in requests if words[1].startswith("gang-")]
    assert "8" in gang, "its one request has all its pods"
    pods = [line.split() for line in result.stdout.splitlines() if " Running " in line]
    jobs = Counter(words[0].rsplit("-", 2)[0] for words in pods if "/" in words[1])
    assert jobs == {
        "gang": 8, "elastic": 6, "train": 4, "pipeline-load": 1, "pipeline-train": 2,
        "notebooks": 3, "inference": 4, "claimed": 4, "with-scratch": 4
    }  # fmt: skip
    assert "Unschedulable: 0 of 4 pods fit" in result.stdout
    assert "OverLimit: queue small-team" in result.stdout
    shares = result.stdout.partition("$ bindery queues\n")[2]
    assert shares.startswith("GPUs: ")
    [small] = [line.split() for line in shares.splitlines() if line.startswith("small-team")]
    assert small[1:3] == ["0", "16"], "it holds nothing and asks for 16"
    assert not processes_of(tmp_path)
    assert not list(tmp_path.glob("bindery-*"))


def test_the_demo_cluster_works_until_demo_down_removes_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    up = demo(environment, "up")
    try:
        assert up.returncode == 0, up.stdout + up.stderr
        urls = dict(
            re.findall(r"^ +(\w+) +(http://127\.0\.0\.1:\d+/metrics)$", up.stdout, re.MULTILINE)
        )
        parts = {"scheduler", "binder", "grouper", "webhook", "nodeagent", "dashboard"}
        assert parts <= urls.keys()
        for url in urls.values():
            with urllib.request.urlopen(url, timeout=30) as answer:
                assert b"bindery_api_requests_total" in answer.read()
        [page] = re.findall(r"^ +(http://127\.0\.0\.1:\d+/)$", up.stdout, re.MULTILINE)
        with urllib.request.urlopen(page, timeout=30) as answer:
            assert answer.url.endswith("/login?next=/") or "/login" in answer.url
        again = demo(environment, "up")
        os.kill(process_id(tmp_path, "grouper run"), signal.SIGKILL)
        without_grouper = demo(environment, "up")
        kubeconfig = tmp_path / "state" / "bindery" / "demo" / "admin.kubeconfig"
        gangs = subprocess.run(
            [
                sys.executable,
                "-m",
                "bindery.cli.main",
                f"--kubeconfig={kubeconfig}",
                "get",
                "gangs",
                "-A",
            ],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    finally:
        down = demo(environment, "down")

    assert again.returncode == 1
    assert "up already" in again.stdout
    assert "have ended" not in again.stdout
    assert "these processes of the demo have ended: grouper\n" in without_grouper.stdout
    assert "grouper had ended before" in down.stdout
    assert "never-fits" in gangs.stdout
    assert down.returncode == 0, down.stdout + down.stderr
    assert not processes_of(tmp_path)
    assert "is not up" in demo(environment, "down").stdout


@pytest.mark.long("starts a demo for a message")
def test_a_demo_with_a_dead_process_ends_at_once_and_names_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with subprocess.Popen(
        [*DEMO, "run"], env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        lines = iter(running.stdout)
        assert any("submitting examples/" in line for line in lines)

        os.kill(process_id(tmp_path, "scheduler run"), signal.SIGKILL)

        rest = "".join(lines)
    assert running.returncode == 1
    assert "scheduler: ended with exit code -9" in rest
    assert "after 60 s" not in rest
    assert not processes_of(tmp_path)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT end processes that are started, also where a shell runs the tests behind it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.long("starts a demo to stop it")
def test_a_stopped_demo_leaves_no_process(
    environment: dict[str, str], tmp_path: Path, how: signal.Signals
) -> None:
    with subprocess.Popen([*DEMO, "run"], env=environment) as running:
        wait_until(lambda: any("hollow" in line for line in processes_of(tmp_path)))

        running.send_signal(how)

        assert running.wait(timeout=120) != 0
    wait_until(lambda: not processes_of(tmp_path))
