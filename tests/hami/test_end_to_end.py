"""Scheduler, binder and a stand-in for the device plugin together, on the real API server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from bindery.api.configuration import LeaderElection, SchedulerConfiguration
from bindery.api.hami import names, nodedevices, poddevices
from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.vendortable import NVIDIA
from bindery.api.names import NODE_POOL_LABEL
from bindery.kube.objects.quotas import RESOURCE_QUOTAS
from bindery.kube.objects.resources import NODES, PODS
from bindery.kube.objects.watched import Pod
from devcluster.components import Components
from tests.hami.hamicluster import HamiCluster, configuration

pytestmark = pytest.mark.e2e


async def add_hami_node(hami: HamiCluster, shares: int = 10) -> str:
    """Create a ready node in the namespace's own pool: one card of 10000 MiB."""
    card = NodeDevice(
        id="GPU-0", count=shares, memory_mib=10_000, cores=100, type="NVIDIA-T4", healthy=True
    )
    node = await hami.add_node(0, **{NVIDIA.register_key: nodedevices.encode_json([card])})
    await hami.client.patch(
        NODES, node, {"metadata": {"labels": {NODE_POOL_LABEL: hami.namespace}}}
    )
    offered = {"cpu": "8", "memory": "32Gi", "pods": "110", NVIDIA.count_resource: str(shares)}
    status = {"capacity": offered, "allocatable": offered, "conditions": [ready()]}
    await hami.client.patch(NODES, node, {"status": status}, subresource="status")
    await hami.client.patch(NODES, node, {"spec": {"taints": None}})
    return node


def ready() -> dict[str, str]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "Ready", "status": "True", "lastHeartbeatTime": now}


@asynccontextmanager
async def heartbeats(hami: HamiCluster, node: str) -> AsyncIterator[None]:
    """Keep the node ready: the node controller marks nodes without a heartbeat for 50 seconds."""

    async def beat() -> None:
        while True:
            patch = {"status": {"conditions": [ready()]}}
            await hami.client.patch(NODES, node, patch, subresource="status")
            await asyncio.sleep(5)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def add_pod(hami: HamiCluster, name: str, memory_mib: str, **annotations: str) -> None:
    limits = {NVIDIA.count_resource: "1", NVIDIA.memory_resource: memory_mib}
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": hami.namespace,
            "labels": {NODE_POOL_LABEL: hami.namespace},
            "annotations": annotations,
        },
        "spec": {
            "schedulerName": "bindery",
            "containers": [{"name": "c", "image": "none", "resources": {"limits": limits}}],
            "terminationGracePeriodSeconds": 0,
        },
    }
    await hami.client.create(PODS, body, hami.namespace)


async def allocated(hami: HamiCluster, name: str) -> Pod:
    """Wait until the device plugin has served the pod; return it."""

    def is_done(pod: Pod) -> bool:
        return bool(pod.spec.node_name) and (
            pod.metadata.annotations.get(names.BIND_PHASE) == "success"
        )

    pod: Pod = await hami.until(PODS, name, is_done, namespace=hami.namespace)
    return pod


def says(pod: Pod) -> str:
    return " ".join(condition.message for condition in pod.status.conditions or ())


async def test_devices_are_planned_and_bound_and_recovered_after_a_restart(
    hami: HamiCluster, components: Components
) -> None:
    node = await add_hami_node(hami)
    planner = SchedulerConfiguration(
        node_pool=hami.namespace, leader_election=LeaderElection(enabled=False)
    )
    components.start_binder(configuration()).wait_ready()
    scheduler = components.start_scheduler(planner).wait_ready()

    async with heartbeats(hami, node), hami.device_plugin(node) as plugin:
        for name in ("a", "b"):
            await add_pod(hami, name, "4000")
        pods = [await allocated(hami, name) for name in ("a", "b")]
        texts = [pod.metadata.annotations[NVIDIA.allocated_key] for pod in pods]
        assert texts == ["GPU-0,NVIDIA,4000,0:;"] * 2

        scheduler.kill()
        # Whoever has pods may write onto them while nobody looks.
        forged = {"metadata": {"annotations": {NVIDIA.allocated_key: "GPU-0,NVIDIA,1,0:;"}}}
        await hami.client.patch(PODS, "a", forged, namespace=hami.namespace)
        scheduler.restart()
        await add_pod(hami, "c", "4000")
        waiting = await hami.until(
            PODS, "c", lambda pod: "CardInsufficientMemory" in says(pod), namespace=hami.namespace
        )
        assert waiting.spec.node_name == ""

        await hami.client.delete(PODS, "a", hami.namespace, grace_period_s=0)
        await allocated(hami, "c")
        await hami.until_unlocked(node)

    assert [served[:2] for served in plugin.served if served[0] == "c"] == [("c", "c")]
    assert all(admitted == served for admitted, served, _ in plugin.served)


async def test_fifty_pods_are_bound_to_one_node_by_its_lock_exactly_once_each(
    hami: HamiCluster, components: Components
) -> None:
    node = await add_hami_node(hami, shares=50)
    planner = SchedulerConfiguration(
        node_pool=hami.namespace, leader_election=LeaderElection(enabled=False)
    )
    components.start_binder(configuration()).wait_ready()
    components.start_scheduler(planner).wait_ready()
    all_names = [f"p{number}" for number in range(50)]

    async with heartbeats(hami, node), hami.device_plugin(node) as plugin:
        await asyncio.gather(*(add_pod(hami, name, "200") for name in all_names))
        await asyncio.gather(*(allocated(hami, name) for name in all_names))
        await hami.until_unlocked(node)
        await add_pod(hami, "late", "200")
        await hami.until(
            PODS, "late", lambda pod: "CardTimeSlicing" in says(pod), namespace=hami.namespace
        )

    assert not plugin.failed
    assert sorted(plugin.served) == sorted((n, n, "GPU-0,NVIDIA,200,0:;") for n in all_names)


async def test_a_malformed_register_blocks_its_node_until_it_is_corrected(
    hami: HamiCluster, components: Components
) -> None:
    node = await add_hami_node(hami)
    planner = SchedulerConfiguration(
        node_pool=hami.namespace, leader_election=LeaderElection(enabled=False)
    )
    components.start_binder(configuration()).wait_ready()
    components.start_scheduler(planner).wait_ready()
    good = (await hami.node(node)).metadata.annotations[NVIDIA.register_key]

    async with heartbeats(hami, node), hami.device_plugin(node):
        broken = {"metadata": {"annotations": {NVIDIA.register_key: json.dumps([{"id": 5}])}}}
        await hami.client.patch(NODES, node, broken)
        await add_pod(hami, "a", "100")
        await hami.until(
            PODS, "a", lambda pod: "cannot be read" in says(pod), namespace=hami.namespace
        )
        healed = {"metadata": {"annotations": {NVIDIA.register_key: good}}}
        await hami.client.patch(NODES, node, healed)
        done = await allocated(hami, "a")

    slots = poddevices.decode(done.metadata.annotations[NVIDIA.allocated_key])
    assert [device.uuid for slot in slots for device in slot] == ["GPU-0"]


async def test_the_limit_of_a_namespace_follows_its_resource_quota(
    hami: HamiCluster, components: Components
) -> None:
    node = await add_hami_node(hami)
    planner = SchedulerConfiguration(
        node_pool=hami.namespace, leader_election=LeaderElection(enabled=False)
    )
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "devices", "namespace": hami.namespace},
        "spec": {"hard": {f"limits.{NVIDIA.memory_resource}": "5000"}},
    }
    await hami.client.create(RESOURCE_QUOTAS, quota, hami.namespace)
    components.start_binder(configuration()).wait_ready()
    components.start_scheduler(planner).wait_ready()

    async with heartbeats(hami, node), hami.device_plugin(node):
        await add_pod(hami, "a", "4000")
        await allocated(hami, "a")
        await add_pod(hami, "b", "4000")
        waiting = await hami.until(
            PODS, "b", lambda pod: "ResourceQuota" in says(pod), namespace=hami.namespace
        )
        assert waiting.spec.node_name == ""

        higher = {"spec": {"hard": {f"limits.{NVIDIA.memory_resource}": "8000"}}}
        await hami.client.patch(RESOURCE_QUOTAS, "devices", higher, namespace=hami.namespace)
        await allocated(hami, "b")
