"""CSI drivers, claims and attachments of a node on a real API server."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bindery.kube.client import Client
from bindery.nodeagent.containers.csiregistration import (
    ATTACHED_BY_CONTROLLER,
    CsiRegistration,
    NodeStorage,
)
from bindery.nodeagent.containers.storageobjects import ApiVolumeObjects
from bindery.nodeagent.volumes.csi.drivers import NODE_IDS, CsiDrivers
from bindery.nodeagent.volumes.interface import MountError
from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.plugins import PluginError
from bindery.nodecore.volumes.populator import VolumeError
from devcluster.plane import ControlPlane
from tests.nodeagent.volumes.csidriver import Driver
from tests.nodeagent.volumes.volumeworld import DRIVER, FakeMounter

NODE = "storage-node"
ZONE = "example.com/zone"


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client.connect(
        control_plane.admin_kubeconfig, user_agent="bindery-test/0"
    ) as client:
        yield client


@pytest.fixture
async def socket(tmp_path: Path) -> AsyncIterator[Path]:
    """The socket of a driver that serves."""
    server = Driver(tmp_path / "state", FakeMounter()).server(tmp_path / "csi.sock")
    await server.start()
    yield tmp_path / "csi.sock"
    await server.stop(None)


@pytest.fixture
def node(control_plane: ControlPlane) -> Any:
    put(control_plane, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    yield NODE
    control_plane.kubectl("delete", "node", NODE)
    control_plane.kubectl("delete", "csinode", NODE, "--ignore-not-found")


def put(control_plane: ControlPlane, body: dict[str, Any], *, namespace: str = "default") -> None:
    control_plane.kubectl(
        "create", "--filename=-", f"--namespace={namespace}", stdin=json.dumps(body)
    )


def read(control_plane: ControlPlane, *what: str) -> Any:
    return json.loads(control_plane.kubectl("get", *what, "--output=json"))


@pytest.mark.e2e
async def test_a_driver_is_in_the_csi_node_while_it_is_registered(
    control_plane: ControlPlane, client: Client, node: str, socket: Path
) -> None:
    drivers = CsiDrivers()
    storage = NodeStorage(client, node)
    handler = CsiRegistration(drivers, storage)
    await storage.announce()
    assert not read(control_plane, "csinode", node)["spec"]["drivers"]

    await handler.register(DRIVER, str(socket), ["1.0.0"])
    await handler.register(DRIVER, str(socket), ["1.0.0"])

    (entry,) = read(control_plane, "csinode", node)["spec"]["drivers"]
    assert entry == {
        "name": DRIVER, "nodeID": "node-id", "topologyKeys": [ZONE], "allocatable": {"count": 7},
    }  # fmt: skip
    meta = read(control_plane, "node", node)["metadata"]
    assert meta["labels"][ZONE] == "a"
    assert meta["annotations"][ATTACHED_BY_CONTROLLER] == "true"
    assert json.loads(meta["annotations"][NODE_IDS]) == {DRIVER: "node-id"}

    await handler.deregister(DRIVER, "/an/older/socket")
    assert drivers.socket(DRIVER) == socket
    await handler.deregister(DRIVER, str(socket))

    assert drivers.socket(DRIVER) is None
    assert not read(control_plane, "csinode", node)["spec"]["drivers"]
    assert NODE_IDS not in read(control_plane, "node", node)["metadata"]["annotations"]


@pytest.mark.e2e
async def test_a_driver_in_another_zone_than_the_node_is_refused(
    control_plane: ControlPlane, client: Client, node: str, socket: Path
) -> None:
    drivers = CsiDrivers()
    control_plane.kubectl("label", "node", node, f"{ZONE}=b")

    with pytest.raises(PluginError, match=ZONE):
        await CsiRegistration(drivers, NodeStorage(client, node)).register(
            DRIVER, str(socket), ["1.0.0"]
        )

    assert drivers.socket(DRIVER) is None


async def test_a_driver_that_does_not_answer_is_not_registered(tmp_path: Path) -> None:
    drivers = CsiDrivers(0.5)

    with pytest.raises(MountError) as raised:
        await drivers.register(DRIVER, tmp_path / "none.sock")

    assert isinstance(raised.value, NodeCoreError)  # the plugin manager reports it
    assert drivers.socket(DRIVER) is None


@pytest.mark.e2e
@pytest.mark.parametrize(("versions", "fits"), [(["1.0.0"], True), (["0.3.0", "2.1.0"], False)])
async def test_only_csi_1_is_spoken(client: Client, versions: list[str], *, fits: bool) -> None:
    handler = CsiRegistration(CsiDrivers(), NodeStorage(client, NODE))

    def validates() -> bool:
        try:
            handler.validate(DRIVER, "/csi.sock", versions)
        except PluginError:
            return False
        return True

    assert validates() is fits


@pytest.mark.e2e
async def test_claims_are_read_and_grow(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    objects = ApiVolumeObjects(client, NODE)
    both = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    volume = {
        **both,
        "capacity": {"storage": "1Gi"},
        "claimRef": {"namespace": namespace, "name": "data"},
        "csi": {"driver": DRIVER, "volumeHandle": "data"},
    }
    wanted = {
        **both, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": namespace,
    }  # fmt: skip
    for kind, name, spec in (
        ("PersistentVolume", namespace, volume),
        ("PersistentVolumeClaim", "data", wanted),
    ):
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        put(control_plane, body, namespace=namespace)
    control_plane.kubectl(
        "wait", "pvc/data", f"--namespace={namespace}", "--for=jsonpath={.status.phase}=Bound"
    )
    claim = await objects.claim(namespace, "data")
    assert claim.size_bytes == 1 << 30
    stored = await objects.volume(namespace)
    assert stored.spec.csi is not None
    assert stored.spec.csi.driver == DRIVER

    larger = msgspec.structs.replace(stored.spec, capacity={"storage": "2Gi"})
    await objects.has_grown(claim, msgspec.structs.replace(stored, spec=larger))

    assert (await objects.claim(namespace, "data")).size_bytes == 2 << 30
    with pytest.raises(VolumeError, match="failed to fetch PV from API server"):
        await objects.volume("none-such")
    assert await objects.driver("none.example.com") is None


@pytest.mark.e2e
async def test_a_volume_is_attached_once_and_detached(client: Client) -> None:
    objects = ApiVolumeObjects(client, NODE)
    for _ in range(2):
        await objects.attach("csi-1", DRIVER, "pv-1")
    found = await objects.attachment("csi-1")
    assert found is not None
    assert not found.status.attached

    for _ in range(2):
        await objects.detach("csi-1")

    assert await objects.attachment("csi-1") is None
