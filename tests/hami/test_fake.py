"""The stand-in for HAMi's device plugin is as strict as the real one, on the real API server."""

import pytest

from bindery.api.hami import names
from bindery.api.hami.lock import NodeLock
from bindery.api.hami.vendortable import NVIDIA
from bindery.kube.objects.resources import PODS
from bindery.kube.objects.watched import Pod
from fakes.hami import HamiDevicePlugin
from tests.hami.hamicluster import HamiCluster

pytestmark = pytest.mark.e2e

DEVICES = "GPU-0,NVIDIA,1000,10:;"


class DeletesFirst(HamiDevicePlugin):
    """A plugin whose pod is deleted right before a key of it is written."""

    before: str = names.BIND_PHASE

    async def _annotate(self, pod: Pod, annotations: dict[str, str]) -> Pod:
        if self.before in annotations:
            meta = pod.metadata
            await self.client.delete(PODS, meta.name, meta.namespace, grace_period_s=0)
        return await super()._annotate(pod, annotations)


async def bound_pod(hami: HamiCluster, node: str, to_allocate: str, **status: str) -> Pod:
    """Return a pod as it is when the kubelet is about to admit it."""
    written = {
        names.ASSIGNED_NODE: node,
        names.BIND_TIME: "1",
        names.BIND_PHASE: "allocating",
        NVIDIA.to_allocate_key: to_allocate,
    }
    await hami.add_pod("a", **written)
    meta = (await hami.pod("a")).metadata
    await hami.client.bind(meta.namespace, meta.name, meta.uid, node)
    if status:
        patch = {"status": status}
        await hami.client.patch(PODS, "a", patch, namespace=hami.namespace, subresource="status")
    return await hami.pod("a")


async def admit(plugin: HamiDevicePlugin, pod: Pod) -> None:
    await plugin.admit(pod)  # one call of the kubelet, without its watch


@pytest.mark.parametrize(("before", "served"), [(names.BIND_PHASE, 1), (NVIDIA.to_allocate_key, 0)])
async def test_a_node_lock_is_released_if_the_pod_is_deleted_before_its_phase_is_written(
    hami: HamiCluster, before: str, served: int
) -> None:
    node = await hami.add_node()
    pod = await bound_pod(hami, node, DEVICES)
    await hami.set_lock(node, NodeLock(1, hami.namespace, "a").encode())
    plugin = DeletesFirst(hami.client, node)
    plugin.before = before
    await admit(plugin, pod)

    assert len(plugin.served) == served
    assert len(plugin.failed) == 1 - served
    assert await hami.lock(node) is None


async def test_a_running_pod_is_not_served_without_a_lock(
    hami: HamiCluster,
) -> None:
    node = await hami.add_node()
    pod = await bound_pod(hami, node, DEVICES, phase="Running")
    plugin = HamiDevicePlugin(hami.client, node)
    await admit(plugin, pod)

    assert plugin.failed == [f"a: no binding pod found on node {node}"]


@pytest.mark.parametrize(
    ("to_allocate", "says"),
    [
        ("", "no pending device allocation found"),
        (";;", "no pending device allocation found"),
        ("GPU-0,NVIDIA,1000,10:GPU-1,NVIDIA,1000,10:;", "device number not matched"),
        ("GPU-0,NVIDIA,1000:;", "pod annotation format error, missing fields"),
    ],
)
async def test_devices_that_cannot_be_allocated_fail_their_pod_with_hamis_message(
    hami: HamiCluster, to_allocate: str, says: str
) -> None:
    node = await hami.add_node()
    pod = await bound_pod(hami, node, to_allocate)
    await hami.set_lock(node, NodeLock(1, hami.namespace, "a").encode())
    plugin = HamiDevicePlugin(hami.client, node)
    await admit(plugin, pod)

    assert plugin.failed == [f"a: {says}"]
    assert (await hami.pod("a")).metadata.annotations[names.BIND_PHASE] == "failed"
    assert await hami.lock(node) is None


async def test_an_unreadable_lock_fails_the_pod_and_is_kept(hami: HamiCluster) -> None:
    node = await hami.add_node()
    pod = await bound_pod(hami, node, DEVICES)
    await hami.set_lock(node, "not,a,lock,at all")
    plugin = HamiDevicePlugin(hami.client, node)
    await admit(plugin, pod)

    assert "has 4 parts" in plugin.failed[0]
    assert await hami.lock(node) == "not,a,lock,at all"
