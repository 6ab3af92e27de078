"""An agent that is killed at a change of the disk leaves what an undisturbed one leaves.

The mounts are real: a CSI driver with directories and disks, tmpfs, loop devices.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.nodeagent.volumes import killedstory
from tests.nodeagent.volumes.namespaces import require_loop_devices, require_mounts, run_alone
from tests.sizes import IS_LONG

UP, DOWN = 79, 41
"""Changes of the disk and calls of the driver in the two stories."""
NEVER = "0 never"


@pytest.fixture(scope="module", autouse=True)
def mounts() -> None:
    require_mounts()
    require_loop_devices()


def play(place: Path, *plan: tuple[str, str]) -> list[dict[str, Any]]:
    place.mkdir()
    found: list[dict[str, Any]] = run_alone(killedstory.__name__, str(place), json.dumps(plan))
    for one in found:  # the place of the test has no part in what is compared
        for kind in ("files", "mounts"):
            one[kind] = [text.replace(str(place), "PLACE") for text in one[kind]]
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return play(tmp_path_factory.mktemp("undisturbed") / "node", ("up", NEVER), ("down", NEVER))


def state(story: dict[str, Any]) -> tuple[Any, ...]:
    return story["files"], story["mounts"], story["loops"]


def test_the_stories_change_the_disk_and_take_all_away(undisturbed: list[dict[str, Any]]) -> None:
    up, down = undisturbed
    assert (up["status"], down["status"]) == (0, 0)
    assert len(up["mounts"]) == 6
    assert up["loops"] == 2
    assert (down["mounts"], down["loops"]) == ([], 0)
    assert all(text.startswith("0o40") and "plugins" in text for text in down["files"][:-1])
    assert abs(up["changes"] - UP) <= 3
    assert abs(down["changes"] - DOWN) <= 3


STEPS = range(1, UP + 1) if IS_LONG else (15, 40, 62)


@pytest.mark.parametrize("when", ["before", "after"] if IS_LONG else ["after"])
@pytest.mark.parametrize("number", STEPS)
def test_volumes_are_the_same_as_without_the_kill(
    number: int, when: str, undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    up, down = undisturbed
    second = f"{number * DOWN // UP + 1} {when}"
    killed, again, killed_below, end = play(
        tmp_path / "node", ("up", f"{number} {when}"), ("up", NEVER), ("down", second),
        ("down", NEVER),
    )  # fmt: skip
    assert killed["status"] == -9 or killed["changes"] < number
    assert again["status"] == 0
    assert state(again) == state(up)
    assert killed_below["status"] in (-9, 0)
    assert state(end) == state(down)


@pytest.mark.parametrize("number", STEPS)
def test_nothing_is_left_of_a_pod_that_is_deleted_while_no_agent_runs(
    number: int, undisturbed: list[dict[str, Any]], tmp_path: Path
) -> None:
    _, end = play(tmp_path / "node", ("up", f"{number} after"), ("down", NEVER))
    assert end["status"] == 0
    assert (end["mounts"], end["loops"]) == ([], 0)
    assert [text for text in end["files"] if not text.startswith("0o40")] == []
