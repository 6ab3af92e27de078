"""The loops around the volume manager: order, errors, and volumes that hang."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from bindery.nodeagent.volumes import nodestatus
from bindery.nodeagent.volumes.csi import drivers as known
from bindery.nodeagent.volumes.definitions import csi_pb2 as api
from bindery.nodeagent.volumes.keeper import VolumesNotReadyError
from bindery.nodecore.volumes.specs import csi_attachment, csi_global_mount
from tests.nodeagent.volumes.csidriver import RPC, Driver
from tests.nodeagent.volumes.volumeworld import (
    DRIVER,
    NODE,
    FakeMounter,
    Objects,
    World,
    claimed,
    pod,
    running,
    tree,
    world,
)

EMPTY = {"name": "scratch", "emptyDir": {}}
DISK = f"kubernetes.io/csi/{DRIVER}^data"


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    """A served driver that shares the fake mounter with the node."""
    found = Driver(tmp_path / "state", FakeMounter())
    server = found.server(tmp_path / "csi.sock")
    await server.start()
    yield found
    await server.stop(None)


@pytest.fixture
async def node(tmp_path: Path, driver: Driver) -> AsyncIterator[World]:
    """A running node without attach, with the driver registered and a claim."""
    of = world(tmp_path / "kubelet", driver.mounter, call_s=0.5)
    of.objects.drivers[DRIVER] = {"attachRequired": False}
    of.objects.add_csi("data")
    await of.drivers.register(DRIVER, tmp_path / "csi.sock")
    async with running(of):
        yield of


async def test_a_volume_is_staged_published_unpublished_and_unstaged(
    node: World, driver: Driver
) -> None:
    node.put(pod("one", claimed("data")))
    await node.is_ready("one")
    staged = node.root / csi_global_mount(DRIVER, "data")
    assert (staged.parent / "vol_data.json").read_text() == (
        f'{{"driverName":"{DRIVER}","volumeHandle":"data"}}\n'
    )
    place = node.root / "pods/one/volumes/kubernetes.io~csi/pv-data"
    assert (place / "vol_data.json").read_text() == (
        f'{{"attachmentID":"{csi_attachment(DRIVER, "data", NODE)}","driverName":"{DRIVER}",'
        f'"nodeName":"{NODE}","specVolID":"pv-data","volumeHandle":"data",'
        '"volumeLifecycleMode":"Persistent"}\n'
    )
    assert node.keeper.mounted("one")["data"].path == place / "mount"

    await node.is_gone("one")
    assert [method for method, _ in driver.calls] == [
        "NodeStageVolume",
        "NodePublishVolume",
        "NodeUnpublishVolume",
        "NodeUnstageVolume",
    ]
    assert not place.exists()
    assert not staged.parent.exists()
    assert driver.mounter.mounts()[1:] == []


async def test_a_volume_is_staged_once_for_two_pods(node: World, driver: Driver) -> None:
    node.put(pod("one", claimed("data")), pod("two", claimed("data")))
    await node.is_ready("one")
    await node.is_ready("two")
    node.remove("one")
    await node.keeper.wait_for_unmount("one")
    calls = [method for method, _ in driver.calls]
    assert calls.count("NodeStageVolume") == 1
    assert "NodeUnstageVolume" not in calls

    await node.is_gone("two")
    assert driver.calls[-1][0] == "NodeUnstageVolume"


async def test_staging_that_never_answers_holds_no_other_volume(
    node: World, driver: Driver
) -> None:
    node.objects.add_csi("stuck")
    driver.hangs = frozenset({"stuck"})
    node.put(pod("stuck", claimed("stuck")))
    await node.until(lambda: ("NodeStageVolume", "stuck") in driver.calls)

    node.put(pod("one", claimed("data"), EMPTY))
    await node.is_ready("one")
    await node.until(lambda: bool(node.events))
    ((uid, reason, message), *_) = node.events
    assert (uid, reason) == ("stuck", "FailedMount")
    assert message == (
        'MountVolume.MountDevice failed for volume "pv-stuck" : rpc error: '
        "code = DeadlineExceeded desc = Deadline Exceeded"
    )
    # The staging may still go on, so it is undone when the pod is gone.
    node.remove("stuck")
    await node.until(lambda: ("NodeUnstageVolume", "stuck") in driver.calls)


async def test_an_object_that_never_answers_holds_no_other_pod(node: World) -> None:
    node.objects.hanging = {"slow", "slow-map"}
    node.put(
        pod("claims", claimed("slow")),
        pod("maps", {"name": "files", "configMap": {"name": "slow-map"}}),
        pod("one", claimed("data")),
    )
    await node.is_ready("one")


async def test_a_final_error_of_staging_leaves_nothing(node: World, driver: Driver) -> None:
    driver.refusals["NodeStageVolume"] = [(grpc.StatusCode.INVALID_ARGUMENT, "no such disk")]
    node.put(pod("one", claimed("data")))
    await node.until(lambda: bool(node.events))
    assert node.events[0][2].endswith("rpc error: code = InvalidArgument desc = no such disk")
    assert node.keeper.manager.actual.globally_mounted_volumes() == []
    assert not list(node.root.rglob("globalmount"))
    await node.is_ready("one")  # the next attempt, after the backoff
    assert [method for method, _ in driver.calls].count("NodeStageVolume") == 2


async def test_a_missing_driver_is_waited_for_and_nothing_is_undone(
    node: World, driver: Driver, tmp_path: Path
) -> None:
    node.drivers.unregister(DRIVER)
    node.put(pod("one", claimed("data")))
    await node.until(lambda: bool(node.events))
    assert node.events[0][2] == (
        'MountVolume.MountDevice failed for volume "pv-data" : kubernetes.io/csi: '
        "attacher.MountDevice failed to create newCsiDriverClient: "
        f"driver name {DRIVER} not found in the list of registered CSI drivers"
    )
    node.remove("one")
    await node.until(lambda: not node.keeper.manager.actual.attached_volumes())
    assert driver.calls == []

    await node.drivers.register(DRIVER, tmp_path / "csi.sock")
    node.put(pod("two", claimed("data")))
    await node.is_ready("two")


async def test_the_pod_gets_its_volume_only_when_the_file_system_has_grown(
    node: World, driver: Driver
) -> None:
    node.objects.add_csi("grown", size="16Mi", has_size="8Mi")
    driver.refusals["NodeExpandVolume"] = [(grpc.StatusCode.INTERNAL, "busy")]
    node.put(pod("one", claimed("grown")))
    await node.until(lambda: bool(node.events))
    assert node.events[0][2] == (
        'MountVolume.Setup failed while expanding volume for volume "pv-grown" : '
        "Expander.NodeExpand failed to expand the volume : rpc error: code = Internal desc = busy"
    )
    assert node.keeper.mounted("one") == {}
    assert node.keeper.manager.has_possibly_mounted_volumes("one")

    await node.is_ready("one")
    assert node.objects.grown == [("grown", 16 << 20)]


async def test_a_driver_that_cannot_grow_a_volume_in_use_mounts_it_anyway(
    node: World, driver: Driver
) -> None:
    node.objects.add_csi("grown", size="16Mi", has_size="8Mi")
    driver.refusals["NodeExpandVolume"] = [(grpc.StatusCode.FAILED_PRECONDITION, "in use")]
    node.put(pod("one", claimed("grown")))
    await node.is_ready("one")
    assert node.objects.grown == []


async def test_a_mounted_volume_grows_when_its_pod_is_looked_at(
    node: World, driver: Driver
) -> None:
    node.put(pod("one", claimed("data")))
    await node.is_ready("one")
    node.objects.volumes["pv-data"]["spec"]["capacity"] = {"storage": "32Mi"}
    await node.is_ready("one")
    await node.until(lambda: node.objects.grown == [("data", 32 << 20)])
    (request,) = [one for one in driver.requests if isinstance(one, api.NodeExpandVolumeRequest)]
    assert request.volume_path.endswith("pv-data/mount")
    assert request.staging_target_path.endswith("globalmount")


async def test_a_pod_with_a_wrong_claim_gets_the_reason(node: World) -> None:
    node.put(pod("one", claimed("missing")))
    with pytest.raises(VolumesNotReadyError) as caught:
        await node.is_ready("one")
    assert str(caught.value) == (
        "unmounted volumes=[missing], unattached volumes=[], failed to process volumes=[missing]: "
        'error processing PVC default/missing: persistentvolumeclaim "missing" not found'
    )


async def test_a_volume_for_one_pod_is_refused_to_a_second(node: World) -> None:
    node.objects.add_csi("alone", modes=["ReadWriteOncePod"])
    node.put(pod("one", claimed("alone")))
    await node.is_ready("one")
    node.put(pod("two", claimed("alone")))
    await node.until(lambda: bool(node.events))
    assert node.events[0] == (
        "two",
        "FailedMount",
        (
            'MountVolume.SetUp failed for volume "pv-alone" : volume uses the ReadWriteOncePod '
            "access mode and is already in use by another pod"
        ),
    )


async def test_a_volume_of_another_zone_is_refused(node: World) -> None:
    expression = {"key": "zone", "operator": "In", "values": ["b"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    node.objects.add_csi("far", nodeAffinity={"required": terms})
    node.put(pod("one", claimed("far")))
    await node.until(lambda: bool(node.events))
    assert node.events[0][2] == (
        'MountVolume.NodeAffinity check failed for volume "pv-far" : no matching NodeSelectorTerms'
    )


async def test_an_attached_volume_waits_for_the_status_of_the_node(
    node: World, driver: Driver
) -> None:
    node.objects.drivers[DRIVER] = {"attachRequired": True}
    node.objects.attachments[csi_attachment(DRIVER, "data", NODE)] = {
        "attached": True,
        "attachmentMetadata": {"lun": "7"},
    }
    node.put(pod("one", claimed("data")))
    manager = node.keeper.manager
    await node.until(lambda: manager.volumes_in_use() == [DISK])
    assert nodestatus.in_use(manager) == [DISK]
    assert driver.calls == []


async def test_a_node_with_a_controller_mounts_what_the_controller_attaches(
    tmp_path: Path, driver: Driver
) -> None:
    of = world(tmp_path / "kubelet", driver.mounter, by_controller=True)
    of.objects.add_csi("data")
    await of.drivers.register(DRIVER, tmp_path / "csi.sock")
    async with running(of):
        of.put(pod("one", claimed("data")))
        await of.until(lambda: nodestatus.in_use(of.keeper.manager) == [DISK])
        of.keeper.set_reported_in_use([DISK])
        of.objects.attachments[csi_attachment(DRIVER, "data", NODE)] = {
            "attached": True,
            "attachmentMetadata": {"lun": "7"},
        }
        entries = [nodestatus.AttachedEntry(name=DISK, device_path="/dev/sdx")]
        of.keeper.set_attached(nodestatus.attached(entries))
        await of.is_ready("one")
        (stage,) = [one for one in driver.requests if isinstance(one, api.NodeStageVolumeRequest)]
        assert dict(stage.publish_context) == {"lun": "7"}
        await of.is_gone("one")
        assert nodestatus.in_use(of.keeper.manager) == []


async def test_without_a_controller_the_node_attaches_and_detaches(
    tmp_path: Path, driver: Driver
) -> None:
    of = world(tmp_path / "kubelet", driver.mounter)
    of.objects.add_csi("data")
    await of.drivers.register(DRIVER, tmp_path / "csi.sock")
    async with running(of):
        of.put(pod("one", claimed("data")))
        await of.is_ready("one")
        assert list(of.objects.attachments) == [csi_attachment(DRIVER, "data", NODE)]
        await of.is_gone("one")
        assert of.objects.attachments == {}


async def test_the_driver_gets_the_pod_secrets_and_tokens(node: World, driver: Driver) -> None:
    node.objects.drivers[DRIVER] = {
        "attachRequired": False,
        "podInfoOnMount": True,
        "volumeLifecycleModes": ["Ephemeral"],
        "tokenRequests": [{"audience": "vault"}],
    }
    node.objects.secrets["login"] = {"user": b"admin"}
    inline = {
        "driver": DRIVER,
        "readOnly": True,
        "volumeAttributes": {"size": "1Gi"},
        "nodePublishSecretRef": {"name": "login"},
    }
    node.put(pod("one", {"name": "own", "csi": inline}))
    await node.is_ready("one")
    (publish,) = [one for one in driver.requests if isinstance(one, api.NodePublishVolumeRequest)]
    assert publish.volume_id.startswith("csi-")
    assert publish.readonly
    assert dict(publish.secrets) == {"user": "admin"}
    assert dict(publish.volume_context) == {
        "size": "1Gi",
        "csi.storage.k8s.io/pod.name": "one",
        "csi.storage.k8s.io/pod.namespace": "default",
        "csi.storage.k8s.io/pod.uid": "one",
        "csi.storage.k8s.io/serviceAccount.name": "",
        "csi.storage.k8s.io/ephemeral": "true",
        "csi.storage.k8s.io/serviceAccount.tokens": (
            '{"vault":{"token":"token of one for vault #1"}}'
        ),
    }
    await node.is_gone("one")
    assert [method for method, _ in driver.calls] == ["NodePublishVolume", "NodeUnpublishVolume"]


async def test_a_driver_without_staging_is_only_published(node: World, driver: Driver) -> None:
    driver.can = (RPC.EXPAND_VOLUME,)
    node.put(pod("one", claimed("data")))
    await node.is_ready("one")
    await node.is_gone("one")
    assert [method for method, _ in driver.calls] == ["NodePublishVolume", "NodeUnpublishVolume"]
    assert not [one for one in tree(node.root) if "globalmount" in one]


async def test_an_unmount_that_fails_is_tried_again(node: World, driver: Driver) -> None:
    node.put(pod("one", claimed("data")))
    await node.is_ready("one")
    driver.refusals["NodeUnpublishVolume"] = [(grpc.StatusCode.INTERNAL, "busy")]
    node.remove("one")
    await node.until(lambda: ("NodeUnstageVolume", "data") in driver.calls)
    assert [method for method, _ in driver.calls].count("NodeUnpublishVolume") == 2


async def test_an_in_tree_disk_is_a_volume_of_its_csi_driver(node: World, tmp_path: Path) -> None:
    await node.drivers.register("ebs.csi.aws.com", tmp_path / "csi.sock")
    node.objects.drivers["ebs.csi.aws.com"] = {"attachRequired": False}
    node.objects.add("old", awsElasticBlockStore={"volumeID": "aws://zone/vol-1"})
    node.put(pod("one", claimed("old")))
    await node.is_ready("one")
    assert [one.name for one in node.keeper.manager.actual.attached_volumes()] == [
        "kubernetes.io/csi/ebs.csi.aws.com^vol-1"
    ]


async def test_a_claim_that_is_made_for_the_pod_is_mounted(node: World) -> None:
    node.objects.add_csi("one-own")
    node.objects.claims["one-own"]["metadata"]["ownerReferences"] = [
        {"uid": "one", "controller": True}
    ]
    node.put(pod("one", {"name": "own", "ephemeral": {"volumeClaimTemplate": {}}}))
    await node.is_ready("one")


async def test_registration_gives_the_entries_of_node_and_csinode(
    tmp_path: Path, driver: Driver
) -> None:
    found = await known.CsiDrivers().register(DRIVER, tmp_path / "csi.sock")
    assert known.csi_node_drivers([{"name": "other"}, {"name": DRIVER}], found) == [
        {"name": "other"},
        {
            "name": DRIVER,
            "nodeID": "node-id",
            "topologyKeys": ["example.com/zone"],
            "allocatable": {"count": 7},
        },
    ]
    assert found.topology == {"example.com/zone": "a"}
    assert known.node_ids('{"other":"x"}', found) == f'{{"{DRIVER}":"node-id","other":"x"}}'


async def test_objects_in_memory_are_enough(tmp_path: Path) -> None:
    of = world(tmp_path, FakeMounter(), Objects())
    async with running(of):
        of.put(pod("one", EMPTY))
        await of.is_ready("one")
        await of.is_gone("one")
