"""Volumes on real mounts: memory, parts of volumes, disks, devices that grow."""

from typing import Any

import pytest

from tests.nodeagent.volumes import mountedstory
from tests.nodeagent.volumes.csidriver import IMAGE_BYTES
from tests.nodeagent.volumes.namespaces import require_loop_devices, require_mounts, run_alone


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    require_mounts()
    require_loop_devices()
    place = tmp_path_factory.mktemp("mounted")
    answer: dict[str, Any] = run_alone(mountedstory.__name__, str(place))
    return answer


def test_memory_takes_no_more_than_its_limit(found: dict[str, Any]) -> None:
    assert found["memory"] == {"too much": "ENOSPC", "is left": False}


def test_a_sub_path_shows_its_part_and_cannot_leave_the_volume(found: dict[str, Any]) -> None:
    assert found["subPath"] == {
        "written": "by the container",
        "file": "content",
        "refusal": "path /etc/passwd is outside of allowed base VOLUME",
        "is left": False,
    }


def test_an_empty_disk_is_formatted_and_shared(found: dict[str, Any]) -> None:
    expected = {"group": mountedstory.GROUP, "read": "content", "written": "EROFS"}
    assert found["disk"] == expected


def test_a_device_grows_while_a_pod_has_it(found: dict[str, Any]) -> None:
    assert found["growing"] == {"before": IMAGE_BYTES, "after": 2 * IMAGE_BYTES}


def test_a_volume_that_is_mounted_elsewhere_stays_staged(found: dict[str, Any]) -> None:
    assert found["held"] == {"stays": True, "is left": False}


def test_no_mount_is_left(found: dict[str, Any]) -> None:
    assert found["left"] == []
