"""After a restart, volumes are found in the directories of pods, and unmounted or kept."""

import pytest

from bindery.nodecore.volumes.manager import VolumeManager
from bindery.nodecore.volumes.populator import PodVolumes, VolumeError
from bindery.nodecore.volumes.reconciler import StepKind
from bindery.nodecore.volumes.reconstruction import FoundVolume, volumes_in
from bindery.nodecore.volumes.specs import VolumeSpec, pod_volume_path
from tests.nodecore.test_volume_manager import CLUSTER, DISK, DISK_NAME, POD, Clock

PATH = pod_volume_path("uid", "kubernetes.io/csi", "pv-1")
UNKNOWN = pod_volume_path("gone", "vendor.com/lost", "data", is_block=True)


def construct(found: FoundVolume) -> VolumeSpec:
    if found.plugin != DISK.plugin:
        raise VolumeError("no volume plugin matched")
    return DISK


def kinds(of: VolumeManager, *pods: PodVolumes, ready: bool = True) -> list[StepKind]:
    steps = of.run_once(pods, sources_ready=ready)
    return [step.kind for step in steps]


@pytest.fixture
def of() -> VolumeManager:
    return VolumeManager(CLUSTER, Clock())


def test_volumes_are_named_by_the_paths_of_pods() -> None:
    assert volumes_in(
        [
            PATH,
            UNKNOWN,
            "pods/uid/etc-hosts",
            "pods/uid/volumes/kubernetes.io~csi",
            "plugins/a/b/c/d",
        ]
    ) == [
        FoundVolume("gone", "vendor.com/lost", "data", is_block=True),
        FoundVolume("uid", "kubernetes.io/csi", "pv-1"),
    ]


def test_nothing_is_unmounted_before_the_node_status_lists_attached_volumes(
    of: VolumeManager,
) -> None:
    of.reconstruct([PATH], construct)
    assert kinds(of) == []

    of.update_from_node_status({DISK_NAME: "/dev/sdb"})
    assert kinds(of) == [StepKind.UNMOUNT]
    found = of.actual.volume(DISK_NAME)
    assert found is not None
    assert (found.device_path, found.is_attachable) == ("/dev/sdb", True)


def test_a_detached_volume_is_unmounted_too(of: VolumeManager) -> None:
    of.reconstruct([PATH], construct)
    of.update_from_node_status({})

    found = of.actual.volume(DISK_NAME)
    assert found is not None
    assert found.is_attachable is False
    assert kinds(of) == [StepKind.UNMOUNT]


def test_a_reconstructed_volume_that_a_pod_uses_is_remounted(of: VolumeManager) -> None:
    of.reconstruct([PATH], construct)
    of.update_from_node_status({DISK_NAME: "/dev/sdb"})

    assert kinds(of, POD) == [StepKind.MOUNT]


def test_volumes_of_unknown_plugins_are_unmounted_once(of: VolumeManager) -> None:
    of.reconstruct([PATH, UNKNOWN], construct)
    assert kinds(of, ready=False) == []
    assert of.take_orphans() == []

    kinds(of)
    assert of.take_orphans() == [FoundVolume("gone", "vendor.com/lost", "data", is_block=True)]
    assert of.take_orphans() == []


def test_a_volume_without_metadata_that_a_pod_uses_is_no_orphan(of: VolumeManager) -> None:
    def nothing(_found: FoundVolume) -> VolumeSpec:
        raise VolumeError("no metadata file")

    of.reconstruct([PATH], nothing)
    kinds(of, POD)

    assert of.take_orphans() == []
