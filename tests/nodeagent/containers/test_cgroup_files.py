"""The cgroup files of a machine, played by plain directories."""

from pathlib import Path

import pytest

from bindery.nodeagent.containers.cgroups import SplitFiles, UnifiedFiles
from bindery.nodecore.cgroups.manager import CgroupFiles

POD, OTHER = "kubepods/pod-1", "kubepods/pod-2"


@pytest.fixture(params=["v1", "v2"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> CgroupFiles:
    """Two pods, of which version 1 has one in a single tree, and files that are no cgroups."""
    trees = {name: tmp_path / name for name in ("cpu", "memory")}
    for tree in trees.values():
        (tree / POD).mkdir(parents=True)
        (tree / "kubepods/cgroup.procs").touch()
        (tree / "kubepods/a-link").symlink_to(tree / POD)
    (trees["memory"] / OTHER).mkdir()
    return SplitFiles(trees) if request.param == "v1" else UnifiedFiles(trees["memory"])


def test_the_children_of_a_cgroup_are_its_directories(files: CgroupFiles) -> None:
    assert files.children("/kubepods") == [f"/{POD}", f"/{OTHER}"]
    assert files.children("/") == ["/kubepods"]
    assert files.children(f"/{POD}") == []


def test_a_cgroup_is_made_and_removed_in_all_trees(files: CgroupFiles) -> None:
    files.make("/kubepods/burstable/pod-3")
    assert files.exists("/kubepods/burstable/pod-3")
    assert files.children("/kubepods/burstable") == ["/kubepods/burstable/pod-3"]
    files.remove("/kubepods/burstable/pod-3")
    assert not files.exists("/kubepods/burstable/pod-3")
