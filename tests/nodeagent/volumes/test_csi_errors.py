"""Kubernetes' mock CSI driver answers with errors: the order of calls, and what they leave.

The table in docs/nodecore.md has which error leaves which state.
"""

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from bindery.nodecore.volumes.actual import MountState
from tests.nodeagent.volumes.mockeddriver import HANDLE, NEVER, MockedDriver, mocked, state
from tests.nodeagent.volumes.volumeworld import DRIVER, World, claimed, pod
from tests.sizes import sample

MOUNTED, UNCERTAIN, NOT_MOUNTED = (
    one.name for one in (MountState.MOUNTED, MountState.UNCERTAIN, MountState.NOT_MOUNTED)
)
STAGE, PUBLISH = "NodeStageVolume", "NodePublishVolume"
UNPUBLISH, UNSTAGE = "NodeUnpublishVolume", "NodeUnstageVolume"
EXPAND = "NodeExpandVolume"
PERHAPS_RUNNING = (
    "DEADLINE_EXCEEDED",
    "UNAVAILABLE",
    "CANCELLED",
    "RESOURCE_EXHAUSTED",
    "ABORTED",
)
"""After these codes the kubelet cannot know whether the driver goes on."""
FINAL = tuple(
    code.name
    for code in reversed(grpc.StatusCode)
    if code.name not in PERHAPS_RUNNING and code != grpc.StatusCode.OK
)


def called(method: str, code: str) -> str:
    """Return the line of a call that failed, with the code as Go writes it."""
    name = "Canceled" if code == "CANCELLED" else code.title().replace("_", "")
    return f"{method} {name}"


def has_failed(of: World, driver: MockedDriver, call: str) -> Callable[[], bool]:
    """Return a question: is the failure of the last call recorded, and the operation over?"""
    return lambda: driver.calls()[-1:] == [call] and bool(of.events)


async def finished(of: World, driver: MockedDriver, uid: str) -> list[str]:
    """Take the pod away, wait until nothing of the volume is left, and return all calls."""
    of.remove(uid)
    await of.until(lambda: state(of) == ("", {}), timeout_s=60)
    return driver.calls()


@pytest.mark.parametrize("code", sample(2, FINAL))
async def test_after_a_final_error_of_staging_nothing_is_undone(tmp_path: Path, code: str) -> None:
    async with mocked(tmp_path) as (of, driver):
        driver.refuse(NodeStageVolume=code)
        of.put(pod("one", claimed(HANDLE)))
        await of.until(has_failed(of, driver, called(STAGE, code)), timeout_s=60)
        assert state(of) == (NOT_MOUNTED, {})

        assert await finished(of, driver, "one") == [called(STAGE, code)]


@pytest.mark.parametrize("code", sample(2, PERHAPS_RUNNING))
async def test_staging_that_perhaps_goes_on_is_undone(tmp_path: Path, code: str) -> None:
    async with mocked(tmp_path) as (of, driver):
        driver.refuse(NodeStageVolume=code)
        of.put(pod("one", claimed(HANDLE)))
        await of.until(has_failed(of, driver, called(STAGE, code)), timeout_s=60)
        assert state(of) == (UNCERTAIN, {})

        assert await finished(of, driver, "one") == [called(STAGE, code), UNSTAGE]


async def test_staging_that_never_answers_is_undone(tmp_path: Path) -> None:
    async with mocked(tmp_path, call_s=1.0) as (of, driver):
        driver.refuse(NodeStageVolume=NEVER)
        of.put(pod("one", claimed(HANDLE)))
        await of.until(lambda: bool(of.events), timeout_s=60)
        assert state(of) == (UNCERTAIN, {})

        assert (await finished(of, driver, "one"))[-1] == UNSTAGE


@pytest.mark.parametrize(
    ("code", "left"), [("INVALID_ARGUMENT", NOT_MOUNTED), ("DEADLINE_EXCEEDED", UNCERTAIN)]
)
async def test_staging_is_repeated_until_it_succeeds(tmp_path: Path, code: str, left: str) -> None:
    async with mocked(tmp_path) as (of, driver):
        driver.refuse(NodeStageVolume=code)
        of.put(pod("one", claimed(HANDLE)))
        await of.until(lambda: len(of.events) >= 2, timeout_s=60)
        assert state(of) == (left, {})
        driver.refuse()
        await of.is_ready("one")
        assert state(of) == (MOUNTED, {"one": MOUNTED})

        calls = await finished(of, driver, "one")
        assert calls == [called(STAGE, code), STAGE, PUBLISH, UNPUBLISH, UNSTAGE]


async def test_a_final_error_ends_the_doubt_of_an_earlier_one(tmp_path: Path) -> None:
    async with mocked(tmp_path) as (of, driver):
        driver.refuse(NodeStageVolume="UNAVAILABLE")
        of.put(pod("one", claimed(HANDLE)))
        await of.until(lambda: state(of) == (UNCERTAIN, {}), timeout_s=60)
        driver.refuse(NodeStageVolume="INTERNAL")
        await of.until(lambda: state(of) == (NOT_MOUNTED, {}), timeout_s=60)

        calls = await finished(of, driver, "one")
        assert calls == [called(STAGE, "UNAVAILABLE"), called(STAGE, "INTERNAL")]


async def test_a_transient_error_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    async with mocked(tmp_path) as (of, driver):
        driver.refuse(NodeStageVolume="UNAVAILABLE")
        of.put(pod("one", claimed(HANDLE)))
        await of.until(lambda: state(of) == (UNCERTAIN, {}), timeout_s=60)
        of.drivers.unregister(DRIVER)
        missing = "not found in the list of registered CSI drivers"
        await of.until(lambda: of.events[-1][2].endswith(missing), timeout_s=60)
        assert state(of) == (UNCERTAIN, {})
        await of.drivers.register(DRIVER, driver.socket)

        assert (await finished(of, driver, "one"))[-1] == UNSTAGE


@pytest.mark.parametrize("code", sample(1, FINAL))
async def test_after_a_final_error_of_publishing_only_staging_is_undone(
    tmp_path: Path, code: str
) -> None:
    async with mocked(tmp_path) as (of, driver):
        driver.refuse(NodePublishVolume=code)
        of.put(pod("one", claimed(HANDLE)))
        await of.until(has_failed(of, driver, called(PUBLISH, code)), timeout_s=60)
        assert state(of) == (MOUNTED, {})

        calls = await finished(of, driver, "one")
        assert UNPUBLISH not in calls
        assert (calls[:2], calls[-1]) == ([STAGE, called(PUBLISH, code)], UNSTAGE)


@pytest.mark.parametrize("code", sample(1, PERHAPS_RUNNING))
async def test_publishing_that_perhaps_goes_on_is_undone_before_staging(
    tmp_path: Path, code: str
) -> None:
    async with mocked(tmp_path) as (of, driver):
        driver.refuse(NodePublishVolume=code)
        of.put(pod("one", claimed(HANDLE)))
        await of.until(has_failed(of, driver, called(PUBLISH, code)), timeout_s=60)
        assert state(of) == (MOUNTED, {"one": UNCERTAIN})

        calls = await finished(of, driver, "one")
        assert calls[:2] == [STAGE, called(PUBLISH, code)]
        assert calls[-2:] == [UNPUBLISH, UNSTAGE]


@pytest.mark.parametrize("code", sample(1, (*FINAL, *PERHAPS_RUNNING)))
async def test_nothing_is_unstaged_before_it_is_unpublished(tmp_path: Path, code: str) -> None:
    async with mocked(tmp_path) as (of, driver):
        of.put(pod("one", claimed(HANDLE)))
        await of.is_ready("one")
        driver.refuse(NodeUnpublishVolume=code)
        of.remove("one")
        failed = called(UNPUBLISH, code)
        await of.until(lambda: failed in driver.calls(), timeout_s=60)
        await of.until(lambda: state(of) == (MOUNTED, {"one": UNCERTAIN}), timeout_s=60)

        driver.refuse()
        await of.until(lambda: state(of) == ("", {}), timeout_s=60)
        assert driver.calls() == [STAGE, PUBLISH, failed, UNPUBLISH, UNSTAGE]


@pytest.mark.parametrize("code", sample(2, ("INVALID_ARGUMENT", "DEADLINE_EXCEEDED", *FINAL)))
async def test_a_volume_is_staged_again_when_unstaging_has_failed(
    tmp_path: Path, code: str
) -> None:
    async with mocked(tmp_path) as (of, driver):
        of.put(pod("one", claimed(HANDLE)))
        await of.is_ready("one")
        driver.refuse(NodeUnstageVolume=code)
        of.remove("one")
        failed = called(UNSTAGE, code)
        await of.until(lambda: failed in driver.calls(), timeout_s=60)
        await of.until(lambda: state(of) == (UNCERTAIN, {}), timeout_s=60)

        of.put(pod("two", claimed(HANDLE)))
        await of.is_ready("two")
        assert state(of) == (MOUNTED, {"two": MOUNTED})
        assert driver.calls()[-2:] == [STAGE, PUBLISH]


@pytest.mark.parametrize("code", sample(1, ("INTERNAL", "DEADLINE_EXCEEDED")))
async def test_a_volume_that_could_not_grow_is_not_given_to_the_pod(
    tmp_path: Path, code: str
) -> None:
    async with mocked(tmp_path) as (of, driver):
        of.objects.add_csi(HANDLE, size="16Mi", has_size="8Mi")
        driver.refuse(NodeExpandVolume=code)
        of.put(pod("one", claimed(HANDLE)))
        await of.until(has_failed(of, driver, called(EXPAND, code)), timeout_s=60)
        assert state(of) == (MOUNTED, {"one": UNCERTAIN})
        assert of.keeper.mounted("one") == {}

        driver.refuse()
        await of.is_ready("one")
        assert state(of) == (MOUNTED, {"one": MOUNTED})
        assert of.objects.grown == [(HANDLE, 16 << 20)]


async def test_a_volume_that_cannot_grow_in_use_is_given_to_the_pod(tmp_path: Path) -> None:
    async with mocked(tmp_path) as (of, driver):
        of.objects.add_csi(HANDLE, size="16Mi", has_size="8Mi")
        driver.refuse(NodeExpandVolume="FAILED_PRECONDITION")
        of.put(pod("one", claimed(HANDLE)))
        await of.is_ready("one")

        assert state(of) == (MOUNTED, {"one": MOUNTED})
        assert called(EXPAND, "FAILED_PRECONDITION") in driver.calls()
        assert of.objects.grown == []
