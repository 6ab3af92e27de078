"""emptyDir, hostPath and local: directories of the node, and their order of mounts."""

import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bindery.nodeagent.volumes.emptydir import Scratch, remove_tree
from bindery.nodeagent.volumes.hostpath import check
from bindery.nodeagent.volumes.interface import MountError
from bindery.nodeagent.volumes.kinds import has_noswap
from bindery.nodeagent.volumes.mounts import at, parsed, references
from bindery.nodeagent.volumes.sources import HostSource, ScratchSource
from bindery.nodeagent.volumes.subpaths import check as check_sub_path
from tests.nodeagent.volumes.volumeworld import FakeMounter, World, claimed, pod, running, world


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[World]:
    of = world(tmp_path / "kubelet", FakeMounter())
    async with running(of):
        yield of


def scratch(node: World) -> Path:
    return node.root / "pods/one/volumes/kubernetes.io~empty-dir/scratch"


def limits(amount: str) -> dict[str, Any]:
    mounts = [{"name": "scratch", "mountPath": "/scratch"}]
    resources = {"limits": {"memory": amount}}
    return {"containers": [{"name": "main", "volumeMounts": mounts, "resources": resources}]}


async def test_an_empty_dir_is_open_to_all_and_goes_with_its_files(node: World) -> None:
    node.put(pod("one", {"name": "scratch", "emptyDir": {}}))
    await node.is_ready("one")
    assert stat.S_IMODE(scratch(node).stat().st_mode) == 0o777
    (scratch(node) / "file").touch()
    await node.is_ready("one")  # a second look changes nothing
    assert (scratch(node) / "file").exists()
    await node.is_gone("one")
    assert not scratch(node).exists()
    assert node.keeper.remove_directories() == ["one"]
    assert list((node.root / "pods").iterdir()) == []


@pytest.mark.parametrize(
    ("size_limit", "memory", "options"),
    [
        (None, None, f"size={1 << 30}"),  # the node's memory for pods
        ("64Mi", None, f"size={64 << 20}"),
        ("64Mi", "32Mi", f"size={32 << 20}"),
        ("8Gi", "2Gi", f"size={1 << 30}"),
    ],
)
async def test_memory_is_limited_by_the_least_limit(
    node: World, size_limit: str | None, memory: str | None, options: str
) -> None:
    source = {"medium": "Memory", **({"sizeLimit": size_limit} if size_limit else {})}
    spec = limits(memory) if memory else {}
    node.put(pod("one", {"name": "scratch", "emptyDir": source}, spec=spec))
    await node.is_ready("one")
    found = at(scratch(node), node.mounter.mounts())
    assert found is not None
    assert (found.kind, found.options) == ("tmpfs", options)


async def test_memory_is_mounted_once_and_again_when_its_mount_has_gone(tmp_path: Path) -> None:
    mounter, place = FakeMounter(), tmp_path / "place"
    scratch, wanted = Scratch(tmp_path, mounter, lambda: 1 << 30), ScratchSource(medium="Memory")
    owner = pod("one", {"name": "scratch", "emptyDir": {"medium": "Memory"}})

    async def make() -> None:
        await scratch.make(place, "scratch", owner, wanted)
        scratch.finish("scratch", owner.uid)

    await make()
    await make()
    assert mounter.log == ["mount tmpfs place"]
    await mounter.unmount(place)
    await make()
    assert mounter.log == ["mount tmpfs place", "unmount place", "mount tmpfs place"]


async def test_an_unknown_medium_is_refused(node: World) -> None:
    node.put(pod("one", {"name": "scratch", "emptyDir": {"medium": "Tape"}}))
    await node.until(lambda: bool(node.events))
    assert node.events[0][2].endswith('unknown storage medium "Tape"')


async def test_the_group_of_the_pod_owns_its_files(node: World) -> None:
    group = max(os.getgroups() or [os.getgid()])
    spec = {"securityContext": {"fsGroup": group}}
    node.put(pod("one", {"name": "scratch", "emptyDir": {}}, spec=spec))
    await node.is_ready("one")
    found = scratch(node).stat()
    assert found.st_gid == group
    assert found.st_mode & stat.S_ISGID


def test_files_with_mounts_inside_are_not_removed(tmp_path: Path) -> None:
    mounter = FakeMounter()
    (tmp_path / "inside").mkdir()
    mounter.made.append(parsed(f"1 2 8:1 / {tmp_path}/inside rw - ext4 x rw")[0])
    with pytest.raises(MountError, match="is mounted"):
        remove_tree(tmp_path, mounter)
    assert (tmp_path / "inside").is_dir()


@pytest.fixture
def paths(tmp_path: Path) -> Path:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    found = socket.socket(socket.AF_UNIX)
    found.bind(str(tmp_path / "socket"))
    found.close()
    return tmp_path


@pytest.mark.parametrize(
    ("path", "kind", "problem"),
    [
        ("directory", "Directory", ""),
        ("file", "Directory", "is not a directory"),
        ("new/deep", "DirectoryOrCreate", ""),
        ("file", "DirectoryOrCreate", "is not a directory"),
        ("file", "File", ""),
        ("missing", "File", "is not a file"),
        ("new-file", "FileOrCreate", ""),
        ("missing/file", "FileOrCreate", "no such file or directory"),
        ("directory", "FileOrCreate", "is not a file"),
        ("socket", "Socket", ""),
        ("file", "Socket", "is not a socket file"),
        ("/dev/null", "CharDevice", ""),
        ("file", "CharDevice", "is not a character device"),
        ("/dev/null", "BlockDevice", "is not a block device"),
        ("missing", "", ""),
        ("file", "Tape", "Tape is an invalid volume type"),
        ("../x", "", "must not contain '..'"),
    ],
)
def test_the_type_of_a_host_path_is_checked(
    paths: Path, path: str, kind: str, problem: str
) -> None:
    source = HostSource(path=f"{paths}/{path}" if path[0] != "/" else path, type=kind)
    if problem:
        with pytest.raises(MountError, match=problem):
            check(source)
    else:
        check(source)
        if kind.endswith("OrCreate"):
            assert (paths / path).exists()


async def test_a_host_path_is_not_mounted_and_stays(node: World, tmp_path: Path) -> None:
    source = {"path": str(tmp_path / "data"), "type": "DirectoryOrCreate"}
    node.put(pod("one", {"name": "host", "hostPath": source}))
    await node.is_ready("one")
    assert node.keeper.mounted("one")["host"].path == tmp_path / "data"
    await node.is_gone("one")
    assert (tmp_path / "data").is_dir()
    assert node.mounter.mounts()[1:] == []


async def test_a_local_volume_is_bound_for_each_pod(node: World, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    node.objects.add("disk", local={"path": str(tmp_path / "disk")})
    node.put(pod("one", claimed("disk")), pod("two", claimed("disk", readOnly=True)))
    await node.is_ready("one")
    await node.is_ready("two")
    options = {one.place.parts[-4]: one.options for one in node.mounter.mounts()[1:]}
    assert options == {"one": "bind", "two": "bind,ro"}
    node.remove("one")
    node.remove("two")
    await node.until(lambda: not node.keeper.manager.actual.attached_volumes())
    assert node.mounter.mounts()[1:] == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (
            "/nowhere/disk",
            (
                'MountVolume.NewMounter initialization failed for volume "pv-disk" : path '
                '"/nowhere/disk" does not exist'
            ),
        ),
        (
            "/dev/null",
            (
                'MountVolume.NewMounter initialization failed for volume "pv-disk" : only '
                "directory and block device are supported"
            ),
        ),
        (
            "/usr/../etc",
            (
                'MountVolume.SetUp failed for volume "pv-disk" : invalid path: /usr/../etc '
                "must not contain '..'"
            ),
        ),
    ],
)
async def test_a_local_volume_that_is_not_there_gives_the_reason(
    node: World, path: str, reason: str
) -> None:
    node.objects.add("disk", local={"path": path})
    node.put(pod("one", claimed("disk")))
    await node.until(lambda: bool(node.events))
    assert node.events[0] == ("one", "FailedMount", reason)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/etc", "error SubPath `/etc` must not be an absolute path"),
        ("a/../../b", "unable to provision SubPath `a/../../b`: must not contain '..'"),
    ],
)
def test_a_sub_path_does_not_lead_out_of_the_volume(path: str, problem: str) -> None:
    with pytest.raises(MountError) as caught:
        check_sub_path(path)
    assert str(caught.value) == problem


def test_mounts_are_read_as_the_kernel_writes_them() -> None:
    text = (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "30 22 8:1 /data\\040x /mnt/a\\040b rw master:2 shared:3 - ext4 /dev/sda1 rw\n"
        "31 22 0:40 / /tmp rw - tmpfs tmpfs rw,size=1k\n"
    )
    mounts = parsed(text)
    assert [one.place for one in mounts] == [Path("/"), Path("/mnt/a b"), Path("/tmp")]
    assert [one.kind for one in mounts] == ["ext4", "ext4", "tmpfs"]
    assert references(Path("/data x"), mounts) == [Path("/mnt/a b")]
    assert references(Path("/tmp/x"), mounts) == []


@pytest.mark.parametrize(
    ("release", "has"), [("6.4.0", True), ("6.3.9-x", False), ("7.0-rc1", True), ("5.15", False)]
)
def test_kernels_since_6_4_have_memory_that_is_not_swapped(release: str, *, has: bool) -> None:
    assert has_noswap(release) == has
