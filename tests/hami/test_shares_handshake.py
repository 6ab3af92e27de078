"""The handshake of Bindery's device plugin on the real API server, call by call."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from bindery.api.hami import names
from bindery.api.hami.lock import NodeLock
from bindery.api.hami.names import BindPhase
from bindery.api.hami.vendortable import NVIDIA, VENDORS
from bindery.kube.client import Client
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import Pod
from bindery.nodeagent.devices.hamiregister import Sharing
from bindery.nodeagent.devices.inventory import NodeGpu
from bindery.nodeagent.devices.podresources import DeviceHolders
from bindery.nodeagent.hamicore import CoreFiles
from bindery.nodeagent.shares.devicelist import DeviceList
from bindery.nodeagent.shares.handshake import Handshake, HandshakeError, Means
from bindery.nodeagent.shares.nodelock import NodeLockReader
from bindery.nodeagent.shares.pods import SHARING_PODS, SharingPod
from bindery.nodeagent.shares.settler import Settler
from bindery.nodeagent.shares.view import NodeView
from tests.hami.hamicluster import HamiCluster

pytestmark = pytest.mark.e2e

CARD = NodeGpu(uuid="GPU-0", index=3, memory_mib=10_000)
DEVICES = "GPU-0,NVIDIA,1000,10:;"
MLU = next(vendor for vendor in VENDORS if vendor.word == "MLU")


class Desk:
    """One node and the parts of its plugin."""

    def __init__(self, hami: HamiCluster, node: str, root: Path) -> None:
        self.hami, self.node = hami, node
        self.client = hami.client
        self.view = NodeView(hami.client, node)
        self.lock = NodeLockReader(hami.client, node)
        self.core = CoreFiles(root, PurePosixPath("/usr/local"))
        self.turn = asyncio.Lock()
        kubelet = DeviceHolders(root / "absent.sock", NVIDIA.count_resource)
        means = Means(
            hami.client, self.view, self.lock, kubelet, self.core, Sharing(4), DeviceList.ENVVAR
        )
        self.handshake = Handshake(means)

    async def bound_pod(self, name: str, text: str = DEVICES, /, **more: str) -> Pod:
        """Create a pod of HAMi's scheduler that is bound here and not admitted yet."""
        count = text.split(";", maxsplit=1)[0].count(":")
        written = {
            names.ASSIGNED_NODE: self.node,
            names.ASSIGNED_TIME: "1",
            names.BIND_TIME: "1",
            names.BIND_PHASE: BindPhase.ALLOCATING.value,
            NVIDIA.to_allocate_key: text,
            NVIDIA.allocated_key: text,
            **more,
        }
        await self.hami.add_pod(name, (count,), **written)
        meta = (await self.hami.pod(name)).metadata
        await self.client.bind(meta.namespace, name, meta.uid, self.node)
        return await self.hami.pod(name)

    async def lock_for(self, name: str) -> None:
        await self.hami.set_lock(self.node, NodeLock(1, self.hami.namespace, name).encode())

    async def annotations(self, name: str) -> dict[str, str]:
        return (await self.hami.pod(name)).metadata.annotations

    async def end(self, name: str) -> None:
        """Let the kubelet report that it has refused the pod."""
        patch = {"status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}}
        await self.client.patch(
            PODS, name, patch, namespace=self.hami.namespace, subresource="status"
        )

    @asynccontextmanager
    async def settling(self) -> AsyncIterator[None]:
        settler = Settler(self.client, self.view, self.lock, self.core, self.turn)
        task = asyncio.create_task(settler.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def desk(hami: HamiCluster, tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(hami, await hami.add_node(), tmp_path)
    watch = asyncio.create_task(desk.view.run())
    await desk.view.wait_filled()
    yield desk
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


async def test_the_pod_that_has_the_lock_is_served_and_the_lock_released(desk: Desk) -> None:
    await desk.bound_pod("other", "GPU-0,NVIDIA,7,7:;")
    await desk.bound_pod("a")
    await desk.lock_for("a")

    granted = await desk.handshake.allocate(["GPU-0"], [CARD])

    assert granted.variables["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
    found = await desk.annotations("a")
    assert found[NVIDIA.to_allocate_key] == ";;"
    assert found[NVIDIA.allocated_key] == DEVICES
    assert found[names.BIND_PHASE] == "success"
    assert found["scheduling.bindery.dev/gpu-indexes"] == "3"
    assert found[names.ISOLATION] == "none"
    assert await desk.hami.lock(desk.node) is None
    assert (await desk.annotations("other"))[names.BIND_PHASE] == "allocating"


async def test_a_pod_is_called_isolated_only_where_hami_cores_library_is(
    desk: Desk, tmp_path: Path
) -> None:
    home = tmp_path / "usr/local/vgpu"
    home.mkdir(parents=True)
    (home / "libvgpu.so").touch()
    pod = await desk.bound_pod("a")

    granted = await desk.handshake.allocate(["GPU-0"], [CARD])

    assert (await desk.annotations("a"))[names.ISOLATION] == "hami-core"
    assert "/etc/ld.so.preload" in {mount.inside for mount in granted.mounts}
    cache = home / "containers" / f"{pod.metadata.uid}_c0"
    assert cache.stat().st_mode & 0o777 == 0o777
    now_s = cache.stat().st_mtime
    desk.core.remove_unknown_pods({pod.metadata.uid}, now_s + 301)
    desk.core.remove_unknown_pods(set(), now_s + 299)
    assert cache.is_dir()
    desk.core.remove_unknown_pods(set(), now_s + 301)
    assert not cache.exists()


async def test_a_card_that_the_node_does_not_have_fails_the_pod_and_frees_the_node(
    desk: Desk,
) -> None:
    await desk.bound_pod("a", "GPU-9,NVIDIA,1000,10:;")
    await desk.lock_for("a")

    with pytest.raises(HandshakeError, match="the node has no GPU GPU-9"):
        await desk.handshake.allocate(["GPU-0"], [CARD])

    assert (await desk.annotations("a"))[names.BIND_PHASE] == "failed"
    assert await desk.hami.lock(desk.node) is None


async def test_what_two_schedulers_have_planned_on_one_card_is_refused_at_its_limit(
    desk: Desk,
) -> None:
    await desk.bound_pod("a", "GPU-0,NVIDIA,6000,10:;")
    await desk.lock_for("a")
    await desk.handshake.allocate(["GPU-0"], [CARD])
    await desk.bound_pod("b", "GPU-0,NVIDIA,6000,10:;")
    await desk.lock_for("b")

    with pytest.raises(HandshakeError, match="has 10000 MiB, and pods would hold 12000"):
        await desk.handshake.allocate(["GPU-0"], [CARD])

    assert (await desk.annotations("b"))[names.BIND_PHASE] == "failed"
    await desk.end("a")
    await desk.bound_pod("c", "GPU-0,NVIDIA,6000,10:;")
    await desk.end("b")
    granted = await desk.handshake.allocate(["GPU-0"], [CARD])
    assert granted.variables["CUDA_DEVICE_MEMORY_LIMIT_0"] == "6000m"


async def test_a_call_that_belongs_to_no_pod_touches_none(desk: Desk) -> None:
    await desk.bound_pod("two", "GPU-0,NVIDIA,1,1:GPU-1,NVIDIA,1,1:;")
    await desk.lock_for("two")
    value = await desk.hami.lock(desk.node)

    with pytest.raises(HandshakeError, match="no pod of this node waits for 1"):
        await desk.handshake.allocate(["GPU-0"], [CARD])

    assert (await desk.annotations("two"))[names.BIND_PHASE] == "allocating"
    assert await desk.hami.lock(desk.node) == value


async def test_the_lock_stays_until_the_plugins_of_other_vendors_are_done(desk: Desk) -> None:
    await desk.bound_pod("a", DEVICES, **{MLU.to_allocate_key: "MLU-1,MLU,1,1:;"})
    await desk.lock_for("a")

    await desk.handshake.allocate(["GPU-0"], [CARD])

    found = await desk.annotations("a")
    assert found[NVIDIA.to_allocate_key] == ";;"
    assert found[names.BIND_PHASE] == "allocating"
    assert await desk.hami.lock(desk.node) is not None


@pytest.mark.parametrize(
    ("value", "is_released"),
    [
        ("2026-08-21T06:20:39Z", True),
        ("2026-08-21T06:20:39Z,{namespace},a", True),
        ("2026-08-21T06:20:39Z,{namespace},xa", False),
        ("nonsense", False),
    ],
)
async def test_only_a_lock_of_the_pod_or_without_a_name_is_released(
    desk: Desk, value: str, is_released: bool
) -> None:
    await desk.bound_pod("a")
    text = value.format(namespace=desk.hami.namespace)
    await desk.hami.set_lock(desk.node, text)

    await desk.handshake.allocate(["GPU-0"], [CARD])

    assert await desk.hami.lock(desk.node) == (None if is_released else text)


async def test_a_lock_that_was_written_again_for_the_same_pod_is_released_too(desk: Desk) -> None:
    pod = await desk.bound_pod("a")
    key = (pod.metadata.namespace, "a")
    await desk.hami.set_lock(desk.node, NodeLock(2, *key).encode())

    await desk.lock.release_of(key, NodeLock(1, *key).encode())

    assert await desk.hami.lock(desk.node) is None
    other = NodeLock(3, key[0], "b").encode()
    await desk.hami.set_lock(desk.node, other)
    await desk.lock.release_of(key, NodeLock(1, *key).encode())
    assert await desk.hami.lock(desk.node) == other


class DeletesFirst(Client):
    """A client before whose write the pod is deleted."""

    async def patch(self, resource: Any, name: str, patch: Any, **where: Any) -> Any:
        if resource is SHARING_PODS:
            await self.delete(PODS, name, where["namespace"], grace_period_s=0)
        return await super().patch(resource, name, patch, **where)


async def test_the_node_is_freed_if_its_pod_is_deleted_within_the_handshake(
    hami: HamiCluster, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.bound_pod("a")
    await desk.lock_for("a")
    monkeypatch.setattr(desk.client, "__class__", DeletesFirst)

    with pytest.raises(HandshakeError, match="is gone"):
        await desk.handshake.allocate(["GPU-0"], [CARD])

    monkeypatch.undo()
    assert await hami.lock(desk.node) is None


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_plugin_that_was_killed_finds_the_failed_pod_and_frees_the_node(
    desk: Desk, is_done: bool
) -> None:
    """The kubelet fails a pod whose call is cut off, before or after the pod was written."""
    await desk.bound_pod("a")
    await desk.lock_for("a")
    if is_done:
        patch = {NVIDIA.to_allocate_key: ";;", names.BIND_PHASE: "success"}
        await desk.client.patch(
            PODS, "a", {"metadata": {"annotations": patch}}, namespace=desk.hami.namespace
        )
    await desk.end("a")

    async with desk.settling():
        await desk.hami.until_unlocked(desk.node)

        def has_phase(pod: SharingPod) -> bool:
            return pod.bind_phase == ("success" if is_done else "failed")

        await desk.hami.until(SHARING_PODS, "a", has_phase, namespace=desk.hami.namespace)


async def test_the_lock_of_a_pod_that_waits_to_be_bound_or_admitted_is_left_alone(
    desk: Desk,
) -> None:
    await desk.bound_pod("bound")
    await desk.hami.add_pod("waiting", (1,))
    async with desk.settling():
        for name in ("bound", "waiting"):
            await desk.lock_for(name)
            await asyncio.sleep(12)  # two looks without a change
            assert await desk.hami.lock(desk.node) is not None
        await desk.client.delete(PODS, "waiting", desk.hami.namespace, grace_period_s=0)
        await desk.hami.until_unlocked(desk.node)
