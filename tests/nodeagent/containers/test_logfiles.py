"""The logs of containers stay within their limits, also after a kill at any step."""

import gzip
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest

from bindery.nodeagent.containers import logfiles
from bindery.nodeagent.containers.logfiles import LogLimits, LogRotation, log_of
from tests.nodeagent.containers.fakeruntime import FakeRuntime
from tests.nodeagent.containers.harness import Harness, container, manifest, running

LIMITS = LogLimits(size_bytes=100, files=4)


@pytest.fixture
async def pod(tmp_path: Path, runtime: FakeRuntime) -> AsyncIterator[Harness]:
    """A pod with one container that runs."""
    async with running(tmp_path, manifest(container()), runtime) as found:
        await found.phase("Running")
        yield found


@pytest.fixture
async def log(tmp_path: Path, pod: Harness) -> Path:
    """Where the log of the container is."""
    (listed,) = await pod.parts.runtime.containers()
    found = log_of(tmp_path / "logs", listed)
    assert found is not None
    assert found == pod.parts.places.log(pod.worker.pod, "app", 0)
    return found


@pytest.fixture
def rotation(tmp_path: Path, pod: Harness) -> LogRotation:
    return LogRotation(pod.parts.runtime, tmp_path / "logs", LIMITS, pod.clock)


def renamed(log: Path) -> list[str]:
    """Return what the renamed logs have, the oldest first."""
    found = []
    for each in sorted(log.parent.glob("0.log.*")):
        data = each.read_bytes()
        found.append((gzip.decompress(data) if each.suffix == ".gz" else data).decode())
    return found


def write(log: Path, data: str) -> None:
    log.write_text(data)


def read(log: Path) -> str:
    return log.read_text()


def text(number: int) -> str:
    return f"{number}" * LIMITS.size_bytes


async def test_a_log_is_renamed_at_its_size_and_a_smaller_one_is_left(
    log: Path, rotation: LogRotation
) -> None:
    write(log, "small")
    await rotation.look()
    assert renamed(log) == []

    write(log, text(1))
    await rotation.look()

    assert renamed(log) == [text(1)]
    assert read(log) == ""


async def test_older_logs_are_compressed_and_the_oldest_removed(
    log: Path, rotation: LogRotation, pod: Harness
) -> None:
    for number in range(6):
        write(log, text(number))
        await rotation.look()
        pod.clock.ahead_s += 10

    assert renamed(log) == [text(3), text(4), text(5)]
    suffixes = [each.suffix == ".gz" for each in sorted(log.parent.glob("0.log.*"))]
    assert suffixes == [True, True, False]
    assert len(list(log.parent.iterdir())) == LIMITS.files


async def test_a_log_that_the_runtime_does_not_begin_again_stays_in_its_place(
    log: Path, rotation: LogRotation, runtime: FakeRuntime
) -> None:
    write(log, text(1))
    runtime.fail("ReopenContainerLog", "no log", grpc.StatusCode.INTERNAL)

    await rotation.look()

    assert read(log) == text(1)
    assert renamed(log) == []


async def test_a_log_that_is_missing_after_a_kill_is_begun_again(
    log: Path, rotation: LogRotation
) -> None:
    write(log.with_name("0.log.20261128-120000"), text(1))

    await rotation.look()

    assert read(log) == ""
    assert renamed(log) == [text(1)]


async def test_what_a_kill_leaves_of_a_compression_is_removed(
    log: Path, rotation: LogRotation
) -> None:
    older = log.with_name("0.log.20261128-120000")
    older.write_text(text(1))
    older.with_name(f"{older.name}.gz").write_bytes(gzip.compress(text(1).encode()))
    log.with_name("0.log.20261128-130000").write_text(text(2))
    log.with_name("0.log.20261128-130000.tmp").write_bytes(b"half")
    write(log, text(3))

    await rotation.look()

    assert renamed(log) == [text(1), text(2), text(3)]


async def test_files_of_others_and_of_ended_containers_are_left(
    log: Path, rotation: LogRotation, runtime: FakeRuntime
) -> None:
    other = log.with_name("00.log")
    other.write_text(text(1))
    write(log, text(2))
    runtime.end("app", 0)

    await rotation.look()

    assert sorted(each.name for each in log.parent.iterdir()) == ["0.log", "00.log"]


async def test_a_runtime_that_is_away_is_asked_again_later(
    log: Path, rotation: LogRotation, runtime: FakeRuntime
) -> None:
    write(log, text(1))
    runtime.fail("ListContainers", "away", grpc.StatusCode.UNAVAILABLE)
    await rotation.look()
    assert renamed(log) == []

    runtime.mend("ListContainers")
    await rotation.look()

    assert renamed(log) == [text(1)]


def has_restarted(pod: Harness, times: int) -> Callable[[], bool]:
    def has() -> bool:
        return bool(pod.report()["restartCount"] == times)

    return has


def test_logs_of_pods_that_are_gone_are_removed_and_no_others(tmp_path: Path) -> None:
    logfiles.remove_others(tmp_path / "logs", ())  # no pod has had any
    known = logfiles.directory_of(tmp_path / "logs", "default", "known", "2c3d")
    gone, other = known.with_name("default_gone_0a1b"), known.with_name("other")
    for each in (known, gone, other):
        (each / "app").mkdir(parents=True)
        (each / "app" / "0.log").touch()

    logfiles.remove_others(tmp_path / "logs", {"2c3d"})

    assert sorted((tmp_path / "logs").iterdir()) == sorted((known, other))


async def test_the_log_of_a_removed_container_goes_with_it(
    tmp_path: Path, runtime: FakeRuntime
) -> None:
    spec = manifest(container(), restartPolicy="Always")
    async with running(tmp_path, spec, runtime) as pod:
        await pod.phase("Running")
        first = pod.parts.places.log(pod.worker.pod, "app", 0)
        for each in (first, first.with_name("0.log.20261128-120000.gz")):
            each.write_text("old")
        for number in range(1, 4):
            runtime.end("app", 1)
            pod.clock.ahead_s += 600
            await pod.until(has_restarted(pod, number))

        await pod.until(lambda: not list(first.parent.glob("0.log*")))
