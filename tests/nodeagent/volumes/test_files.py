"""configMap, secret, downwardAPI and projected volumes, and the writer of their files."""

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bindery.nodeagent.volumes import atomicwriter
from bindery.nodeagent.volumes.atomicwriter import VolumeFile
from bindery.nodeagent.volumes.interface import MountError
from bindery.nodeagent.volumes.mounts import at
from tests.nodeagent.volumes.volumeworld import FakeMounter, World, pod, running, world
from tests.sizes import examples

NOW_S = 1_790_000_000.0  # 2026-09-21 14:13:20 UTC


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[World]:
    of = world(tmp_path, FakeMounter())
    of.objects.maps["settings"] = {"a": b"1", "b": b"2"}
    of.objects.secrets["login"] = {"user": b"admin", "password": b"\xff\x00"}
    async with running(of):
        yield of


def place(node: World, kind: str, name: str = "files") -> Path:
    return node.root / f"pods/one/volumes/kubernetes.io~{kind}/{name}"


def seen(directory: Path) -> dict[str, bytes]:
    """Return the files that containers see, without the names of the writer."""
    return {
        str(one.relative_to(directory)): one.read_bytes()
        for top in directory.iterdir()
        if not top.name.startswith("..")
        for one in ([top] if top.is_file() else top.rglob("*"))
        if one.is_file()
    }


async def test_a_config_map_is_a_link_to_a_directory_with_the_time(node: World) -> None:
    node.put(pod("one", {"name": "files", "configMap": {"name": "settings", "defaultMode": 416}}))
    await node.is_ready("one")
    found = place(node, "configmap")
    data = (found / "..data").readlink()
    assert str(data).startswith("..2026_09_21_14_13_20.")
    assert (found / "a").readlink() == Path("..data/a")
    assert seen(found) == {"a": b"1", "b": b"2"}
    assert stat.S_IMODE((found / "a").stat().st_mode) == 0o640
    assert stat.S_IMODE((found / data).stat().st_mode) == 0o755
    assert at(found, node.mounter.mounts()) is None
    assert (node.root / "pods/one/plugins/kubernetes.io~empty-dir/wrapped_files/ready").exists()


async def test_files_follow_the_object_when_the_pod_is_looked_at(node: World) -> None:
    node.put(pod("one", {"name": "files", "configMap": {"name": "settings"}}))
    await node.is_ready("one")
    found = place(node, "configmap")
    before = (found / "..data").readlink()
    node.objects.maps["settings"] = {"a": b"new"}
    await node.is_ready("one")
    await node.until(lambda: seen(found) == {"a": b"new"})
    assert not (found / before).exists()
    assert not (found / "b").is_symlink()


async def test_unchanged_files_are_not_written(node: World) -> None:
    files = {"a": VolumeFile(b"1", 0o644)}
    directory = node.root / "files"
    directory.mkdir()
    assert atomicwriter.write(directory, files, NOW_S)
    assert not atomicwriter.write(directory, files, NOW_S)


ITEMS = [{"key": "a", "path": "deep/er/file", "mode": 256}]


@pytest.mark.parametrize(
    ("kind", "source", "files"),
    [
        ("configmap", {"configMap": {"name": "settings", "items": ITEMS}}, {"deep/er/file": b"1"}),
        ("configmap", {"configMap": {"name": "missing", "optional": True}}, {}),
        (
            "configmap",
            {"configMap": {"name": "settings", "items": [{"key": "c", "path": "c"}],
                           "optional": True}},
            {},
        ),
        ("secret", {"secret": {"secretName": "login"}},
         {"user": b"admin", "password": b"\xff\x00"}),
        (
            "downward-api",
            {
                "downwardAPI": {
                    "items": [
                        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                        {"path": "cpu", "resourceFieldRef": {"resource": "limits.cpu"}},
                    ]
                }
            },
            {"name": b"metadata.name of one", "cpu": b"limits.cpu of one"},
        ),
        (
            "projected",
            {
                "projected": {
                    "sources": [
                        {"configMap": {"name": "settings", "items": ITEMS}},
                        {"secret": {"name": "login", "items": [{"key": "user", "path": "u"}]}},
                        {"downwardAPI": {"items": [
                            {"path": "uid", "fieldRef": {"fieldPath": "metadata.uid"}}]}},
                        {"serviceAccountToken": {"path": "token", "audience": "vault"}},
                    ]
                }
            },
            {
                "deep/er/file": b"1", "u": b"admin", "uid": b"metadata.uid of one",
                "token": b"token of one for vault #1",
            },
        ),
    ],
    ids=["items", "optional map", "optional key", "secret", "fields", "projected"],
)  # fmt: skip
async def test_each_kind_has_its_files(
    node: World, kind: str, source: dict[str, Any], files: dict[str, bytes]
) -> None:
    node.put(pod("one", {"name": "files", **source}))
    await node.is_ready("one")
    assert seen(place(node, kind)) == files
    is_in_memory = at(place(node, kind), node.mounter.mounts()) is not None
    assert is_in_memory == (kind != "configmap")
    await node.is_gone("one")
    assert not place(node, kind).exists()
    assert node.mounter.mounts()[1:] == []


SETUP = 'MountVolume.SetUp failed for volume "files" : '


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"configMap": {"name": "gone"}}, 'configmap "gone" not found'),
        ({"secret": {"secretName": "gone"}}, 'secret "gone" not found'),
        (
            {"configMap": {"name": "settings", "items": [{"key": "c", "path": "c"}]}},
            "configmap references non-existent config key: c",
        ),
        (
            {"secret": {"secretName": "login", "items": [{"key": "c", "path": "c"}]}},
            "references non-existent secret key: c",
        ),
        (
            {"configMap": {"name": "settings", "items": [{"key": "a", "path": "x/../../y"}]}},
            "invalid path: must not contain '..': x/../../y",
        ),
        (
            {"configMap": {"name": "settings", "items": [{"key": "a", "path": "..hidden"}]}},
            "invalid path: must not start with '..': ..hidden",
        ),
        (
            {"configMap": {"name": "settings", "items": [{"key": "a", "path": "/etc/passwd"}]}},
            "invalid path: must be relative path: /etc/passwd",
        ),
        (
            {"projected": {"sources": [{"secret": {"name": "x"}}, {"configMap": {"name": "y"}}]}},
            '[secret "x" not found, configmap "y" not found]',
        ),
    ],
    ids=["map", "secret", "key of map", "key of secret", "upwards", "dots", "absolute", "several"],
)
async def test_the_pod_gets_the_reason_in_the_words_of_the_kubelet(
    node: World, source: dict[str, Any], reason: str
) -> None:
    node.put(pod("one", {"name": "files", **source}))
    await node.until(lambda: bool(node.events))
    assert node.events[0] == ("one", "FailedMount", SETUP + reason)
    assert not list(node.root.glob("pods/one/volumes/*/files"))


async def test_token_files_belong_to_the_one_user_of_the_pod(node: World) -> None:
    source = {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    spec = {"securityContext": {"runAsUser": os.getuid(), "fsGroup": os.getgid()}}
    node.put(pod("one", {"name": "files", **source}, spec=spec))
    await node.is_ready("one")
    found = place(node, "projected") / "token"
    assert stat.S_IMODE(found.stat().st_mode) == 0o640  # 0600, and readable by the group
    assert found.stat().st_gid == os.getgid()


async def test_a_directory_is_made_for_each_volume_that_is_mounted_inside(node: World) -> None:
    container = {
        "name": "main",
        "volumeMounts": [
            {"name": "files", "mountPath": "/etc/app"},
            {"name": "inner", "mountPath": "/etc/app/cache/x"},
        ],
    }
    volumes = [{"name": "files", "configMap": {"name": "settings"}}, {"name": "inner",
                                                                    "emptyDir": {}}]  # fmt: skip
    node.put(pod("one", *volumes, spec={"containers": [container]}))
    await node.is_ready("one")
    assert (place(node, "configmap") / "cache/x").is_dir()


NAMES = st.sampled_from(["a", "b", "c/d", "c/e", "f/g/h"])
CONTENT = st.dictionaries(NAMES, st.binary(max_size=3), max_size=4)


@given(st.lists(CONTENT, min_size=1, max_size=5))
@settings(max_examples=examples(21), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_reader_sees_exactly_the_last_files(
    tmp_path_factory: pytest.TempPathFactory, versions: list[dict[str, bytes]]
) -> None:
    directory = tmp_path_factory.mktemp("files")
    for files in versions:
        atomicwriter.write(
            directory, {path: VolumeFile(data, 0o644) for path, data in files.items()}, NOW_S
        )
        assert seen(directory) == files
        assert len(list(directory.glob("..2*"))) == 1


@pytest.mark.parametrize("left", ["..data_tmp", "..2026_01_01_00_00_00.dead"])
def test_what_a_killed_writer_has_left_is_removed(tmp_path: Path, left: str) -> None:
    old, new = {"a": VolumeFile(b"old", 0o644)}, {"a": VolumeFile(b"new", 0o644)}
    atomicwriter.write(tmp_path, old, NOW_S)
    if left == "..data_tmp":
        (tmp_path / left).symlink_to("nowhere")
    else:
        (tmp_path / left).mkdir()
        (tmp_path / left / "a").write_bytes(b"half")
    atomicwriter.write(tmp_path, new, NOW_S)
    assert seen(tmp_path) == {"a": b"new"}
    assert not (tmp_path / left).is_symlink()
    assert not (tmp_path / left).exists()


def test_names_of_files_have_a_longest_length(tmp_path: Path) -> None:
    with pytest.raises(MountError, match="less than or equal to 255 characters"):
        atomicwriter.write(tmp_path, {"x" * 256: VolumeFile(b"", 0o644)}, NOW_S)
    with pytest.raises(MountError, match="less than or equal to 4096 characters"):
        atomicwriter.write(tmp_path, {"x/" * 2049: VolumeFile(b"", 0o644)}, NOW_S)
