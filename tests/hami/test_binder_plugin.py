"""The binder's plugin hami on the real API server, with a stand-in for the device plugin."""

import asyncio
import re
import time
from collections.abc import Callable

import pytest

from bindery.api.hami import assignment as assignments
from bindery.api.hami import names
from bindery.api.hami.assignment import Assignment
from bindery.api.hami.lock import NodeLock
from bindery.api.hami.vendortable import NVIDIA
from bindery.api.names import NODE_POOL_LABEL
from bindery.kube.objects.resources import BIND_REQUESTS, NODES, PODS
from bindery.kube.objects.watched import Pod
from devcluster.components import Component
from tests.hami.hamicluster import HamiCluster, gpu
from tests.sizes import sample

pytestmark = pytest.mark.e2e

Start = Callable[..., Component]
Share = Callable[..., None]
DEVICES = "GPU-0,NVIDIA,1000,10:;"


def handovers(binder: Component) -> float:
    found = re.search(
        r"^bindery_node_lock_handovers_total ([0-9.e+]+)", binder.metrics(), re.MULTILINE
    )
    return float(found.group(1)) if found else 0.0


async def test_a_pod_is_annotated_locked_bound_and_released_as_by_hami(
    hami: HamiCluster, share_binder: Share
) -> None:
    node = await hami.add_node()
    await hami.add_pod("a")
    share_binder()

    async with hami.device_plugin(node, works=False):
        await hami.request("a", ["a"], node)
        (request,) = await hami.ended("a")
        pod, value = await hami.pod("a"), await hami.lock(node)

    assert request.status.phase == "Succeeded"
    annotations = pod.metadata.annotations
    assert annotations[NVIDIA.allocated_key] == annotations[NVIDIA.to_allocate_key] == DEVICES
    assert annotations[names.ASSIGNED_NODE] == pod.metadata.labels[names.ASSIGNED_NODE] == node
    assert annotations[names.BIND_PHASE] == "allocating"
    assert annotations[names.ASSIGNED_TIME].isdecimal()
    assert annotations[names.BIND_TIME].isdecimal()
    assert value is not None
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ,{hami.namespace},a", value)

    async with hami.device_plugin(node) as plugin:
        await hami.until_unlocked(node)
        done = await hami.pod("a")

    assert plugin.served == [("a", "a", DEVICES)]
    assert done.metadata.annotations[names.BIND_PHASE] == "success"
    assert done.metadata.annotations[NVIDIA.to_allocate_key] == ";;"
    assert done.metadata.annotations[NVIDIA.allocated_key] == DEVICES


async def test_fifty_pods_pass_the_lock_of_one_node_exactly_once_each(
    hami: HamiCluster, start_binder: Start
) -> None:
    node = await hami.add_node()
    names_of = [f"p{number}" for number in range(50)]
    for name in names_of:
        await hami.add_pod(name)
    binder = start_binder()

    async with hami.device_plugin(node) as plugin:
        # Two gangs of ten and thirty single pods, all at once.
        await hami.request("gang-a", names_of[:10], node)
        await hami.request("gang-b", names_of[10:20], node)
        await asyncio.gather(*(hami.request(name, [name], node) for name in names_of[20:]))
        requests = await hami.ended("gang-a", "gang-b", *names_of[20:])
        await hami.until_unlocked(node)

    assert {request.status.phase for request in requests} == {"Succeeded"}
    assert not plugin.failed
    assert sorted(admitted for admitted, _, _ in plugin.served) == sorted(names_of)
    assert all(admitted == served for admitted, served, _ in plugin.served)
    assert handovers(binder) == 50.0


async def test_a_pod_keeps_the_lock_until_its_last_container_is_served(
    hami: HamiCluster, share_binder: Share
) -> None:
    node = await hami.add_node()
    await hami.add_pod("a", (1, 0, 1))
    await hami.add_pod("b", (0, 1))
    share_binder()

    async with hami.device_plugin(node) as plugin:
        await hami.request("both", ["a", "b"], node)
        await hami.ended("both")
        await hami.until_unlocked(node)

    assert not plugin.failed
    assert sorted(served[:2] for served in plugin.served) == [("a", "a"), ("a", "a"), ("b", "b")]


async def test_a_slow_lock_holder_delays_only_its_own_node(
    hami: HamiCluster, share_binder: Share
) -> None:
    slow, quick = await hami.add_node(0), await hami.add_node(1)
    for name in ("stuck", "behind", "elsewhere"):
        await hami.add_pod(name)
    share_binder()

    async with hami.device_plugin(slow, works=False), hami.device_plugin(quick):
        await hami.request("stuck", ["stuck"], slow)
        await hami.ended("stuck")
        held = await hami.lock(slow)
        await hami.request("behind", ["behind"], slow)
        await hami.request("elsewhere", ["elsewhere"], quick)
        await hami.ended("elsewhere")
        await hami.until_unlocked(quick)
        behind = await hami.pod("behind")

        assert behind.spec.node_name == ""
        assert await hami.lock(slow) == held

    async with hami.device_plugin(slow) as plugin:
        await hami.ended("behind")
        await hami.until_unlocked(slow)
    assert [served[:2] for served in plugin.served] == [("stuck", "stuck"), ("behind", "behind")]


async def test_a_lock_of_a_live_holder_is_never_taken_regardless_of_its_age(
    hami: HamiCluster, start_binder: Start
) -> None:
    node = await hami.add_node()
    await hami.add_pod("stuck")
    await hami.add_pod("behind")
    start_binder(expireSeconds=1, stallSeconds=2)

    async with hami.device_plugin(node, works=False):
        await hami.request("stuck", ["stuck"], node)
        await hami.ended("stuck")
        held = await hami.lock(node)
        await hami.request("behind", ["behind"], node, backoffLimit=1)
        (request,) = await hami.ended("behind")

        assert request.status.phase == "Failed"
        assert "NodeLockStalled" in request.status.reason
        assert await hami.lock(node) == held
        behind = await hami.pod("behind")
        assert not {names.ASSIGNED_NODE, names.BIND_PHASE, NVIDIA.allocated_key} & set(
            behind.metadata.annotations
        )
        assert names.ASSIGNED_NODE not in behind.metadata.labels


def is_written(pod: Pod) -> bool:
    return names.BIND_PHASE in pod.metadata.annotations


def seconds_ago(age_s: float, name: str, namespace: str) -> str:
    return NodeLock(int(time.time() - age_s), namespace, name).encode()


async def gone(hami: HamiCluster, node: str) -> str:
    return seconds_ago(1, "never-was", hami.namespace)


async def unbound_and_expired(hami: HamiCluster, node: str) -> str:
    await hami.add_pod("holder")
    # Older than the lock, or it would be one that was created again.
    return seconds_ago(0, "holder", hami.namespace)


async def ended(hami: HamiCluster, node: str) -> str:
    await hami.add_pod("holder")
    await hami.client.patch(
        PODS, "holder", {"status": {"phase": "Failed"}}, namespace=hami.namespace,
        subresource="status",
    )  # fmt: skip
    return seconds_ago(0, "holder", hami.namespace)


async def created_again(hami: HamiCluster, node: str) -> str:
    await hami.add_pod("holder")
    return seconds_ago(60, "holder", hami.namespace)


async def allocated(hami: HamiCluster, node: str) -> str:
    await hami.add_pod("holder", **{names.BIND_PHASE: "success"})
    holder = await hami.pod("holder")
    await hami.client.bind(hami.namespace, "holder", holder.metadata.uid, node)
    return seconds_ago(0, "holder", hami.namespace)


async def malformed(hami: HamiCluster, node: str) -> str:
    return "not,a,lock,at all"


async def legacy(hami: HamiCluster, node: str) -> str:
    return seconds_ago(0, "", "")


@pytest.mark.parametrize(
    "make",
    sample(3, [gone, unbound_and_expired, ended, created_again, allocated, malformed, legacy]),
)
async def test_a_lock_of_a_dead_holder_is_released(
    hami: HamiCluster,
    start_binder: Start,
    make: Callable[[HamiCluster, str], object],
) -> None:
    node = await hami.add_node()
    await hami.add_pod("next")
    value = await make(hami, node)  # type: ignore[misc]
    await hami.set_lock(node, value)
    start_binder(expireSeconds=3)

    async with hami.device_plugin(node) as plugin:
        await hami.request("next", ["next"], node)
        (request,) = await hami.ended("next")
        await hami.until_unlocked(node)

    assert request.status.phase == "Succeeded"
    assert ("next", "next", DEVICES) in plugin.served


async def test_a_lock_is_released_at_once_when_its_holder_is_deleted(
    hami: HamiCluster, share_binder: Share
) -> None:
    node = await hami.add_node()
    await hami.add_pod("holder")
    await hami.add_pod("next")
    share_binder()

    async with hami.device_plugin(node, works=False):
        await hami.request("holder", ["holder"], node)
        await hami.ended("holder")
        await hami.request("next", ["next"], node)
        await hami.client.delete(PODS, "holder", hami.namespace, grace_period_s=0)
        (request,) = await hami.ended("next")

    assert request.status.phase == "Succeeded"
    assert (await hami.lock(node) or "").endswith(",next")


async def test_forged_annotations_are_replaced_and_others_removed(
    hami: HamiCluster, share_binder: Share
) -> None:
    node = await hami.add_node()
    forged = {
        NVIDIA.to_allocate_key: "GPU-9,NVIDIA,99999,100:;",
        "hami.io/dcu-devices-to-allocate": "DCU-9,DCU,1,1:;",
        names.BIND_PHASE: "success",
        "mine": "stays",
    }
    await hami.add_pod("a", **forged)
    share_binder()

    async with hami.device_plugin(node) as plugin:
        await hami.request("a", ["a"], node)
        await hami.ended("a")
        await hami.until_unlocked(node)
        annotations = (await hami.pod("a")).metadata.annotations

    assert plugin.served == [("a", "a", DEVICES)]
    assert "hami.io/dcu-devices-to-allocate" not in annotations
    assert annotations["mine"] == "stays"


async def test_unreadable_devices_fail_only_their_pod(
    hami: HamiCluster, share_binder: Share
) -> None:
    node = await hami.add_node()
    await hami.add_pod("bad")
    await hami.add_pod("good")
    share_binder()

    async with hami.device_plugin(node):
        await hami.request("good", ["good"], node)
        pod = await hami.pod("bad")
        binding = {
            "podName": "bad",
            "podUID": pod.metadata.uid,
            "selectedNode": node,
            "pluginData": {"hami": {"devices": {"NVIDIA": "GPU-0,NVIDIA,x,1:;"}}},
        }
        body = {
            "apiVersion": "scheduling.bindery.dev/v1alpha1",
            "kind": "BindRequest",
            "metadata": {
                "name": "bad",
                "namespace": hami.namespace,
                "labels": {NODE_POOL_LABEL: hami.namespace},
            },
            "spec": {"statements": [{"id": "bad", "pods": [binding]}]},
        }

        await hami.client.create(BIND_REQUESTS, body, hami.namespace)
        failed, succeeded = await hami.ended("bad", "good")

    assert (failed.status.phase, failed.status.reason) == ("Failed", "MalformedDevices")
    assert "memory 'x' is not a whole number" in failed.status.message
    assert succeeded.status.phase == "Succeeded"


async def test_a_gang_with_a_request_deleted_in_the_lock_queue_leaves_nothing(
    hami: HamiCluster, share_binder: Share
) -> None:
    node = await hami.add_node()
    for name in ("holder", "a", "b"):
        await hami.add_pod(name)
    share_binder()

    async with hami.device_plugin(node, works=False):
        await hami.request("holder", ["holder"], node)
        await hami.ended("holder")
        held = await hami.lock(node)
        await hami.request("gang", ["a", "b"], node)
        for name in ("a", "b"):
            await hami.until(
                PODS,
                name,
                lambda pod: names.BIND_PHASE in pod.metadata.annotations,
                namespace=hami.namespace,
            )

        await hami.client.delete(BIND_REQUESTS, "gang", hami.namespace)
        for name in ("a", "b"):
            await hami.until(
                PODS,
                name,
                lambda pod: names.BIND_PHASE not in pod.metadata.annotations,
                namespace=hami.namespace,
            )

    assert await hami.lock(node) == held


@pytest.mark.parametrize("after", sample(1, ["locked", "written", "bound"]))
async def test_the_next_binder_completes_the_gang_of_a_killed_one(
    hami: HamiCluster, start_binder: Start, after: str
) -> None:
    node = await hami.add_node()
    members = [f"g{number}" for number in range(6)]
    for name in (*members, "holder"):
        await hami.add_pod(name)
    binder = start_binder(expireSeconds=3)
    if after != "bound":  # the gang waits behind somebody while the binder is killed
        await hami.set_lock(node, seconds_ago(0, "holder", hami.namespace))

    async with hami.device_plugin(node, works=after == "bound") as plugin:
        await hami.request("gang", members, node)
        await hami.until(
            PODS,
            members[0],
            lambda pod: names.BIND_PHASE in pod.metadata.annotations,
            namespace=hami.namespace,
        )
        if after == "locked":  # as one that died between its lock and the binding
            binder.kill()
            await hami.set_lock(node, seconds_ago(0, members[0], hami.namespace))
        if after == "bound":
            async with asyncio.timeout(30):
                await plugin.admitted.wait()
        binder.kill()
        plugin.works = True
        binder.restart()
        (request,) = await hami.ended("gang")
        await hami.until_unlocked(node)

    assert request.status.phase == "Succeeded"
    assert sorted(served[0] for served in plugin.served) == members
    assert all(admitted == served for admitted, served, _ in plugin.served)


async def test_a_lock_of_a_stock_scheduler_is_taken_after_its_release(
    hami: HamiCluster, share_binder: Share
) -> None:
    node = await hami.add_node()
    await hami.add_pod("theirs")
    await hami.add_pod("ours")
    share_binder()
    await hami.set_lock(node, seconds_ago(0, "theirs", hami.namespace))

    async with hami.device_plugin(node) as plugin:
        await hami.request("ours", ["ours"], node)
        await hami.until(
            PODS,
            "ours",
            lambda pod: names.BIND_PHASE in pod.metadata.annotations,
            namespace=hami.namespace,
        )
        # Heartbeats change the node all the time; the queue waits for the lock, not the version.
        await hami.client.patch(NODES, node, {"metadata": {"labels": {"beat": "1"}}})
        assert (await hami.pod("ours")).spec.node_name == ""
        await hami.set_lock(node, None)
        await hami.ended("ours")
        await hami.until_unlocked(node)

    assert plugin.served == [("ours", "ours", DEVICES)]


@pytest.mark.parametrize(
    "rewritten",
    sample(
        1,
        [
            {NVIDIA.to_allocate_key: "GPU-9,NVIDIA,99999,100:;", NVIDIA.allocated_key: ""},
            {"hami.io/dcu-devices-to-allocate": "DCU-9,DCU,1,1:;"},
            {names.DEVICES_RECORD: None},
        ],
    ),
)
async def test_devices_changed_while_a_pod_waits_for_the_lock_are_not_served(
    hami: HamiCluster, start_binder: Start, rewritten: dict[str, str | None]
) -> None:
    node = await hami.add_node()
    await hami.add_pod("holder")
    await hami.add_pod("a")
    binder = start_binder()
    await hami.set_lock(node, seconds_ago(0, "holder", hami.namespace))

    async with hami.device_plugin(node) as plugin:
        await hami.request("a", ["a"], node)
        await hami.until(PODS, "a", is_written, namespace=hami.namespace)
        patch = {"metadata": {"annotations": rewritten}}
        await hami.client.patch(PODS, "a", patch, namespace=hami.namespace)
        await hami.set_lock(node, None)
        (request,) = await hami.ended("a")
        await hami.until_unlocked(node)
        annotations = (await hami.pod("a")).metadata.annotations

    assert request.status.phase == "Succeeded"
    assert plugin.served == [("a", "a", DEVICES)]
    assert annotations[NVIDIA.allocated_key] == DEVICES
    assert "hami.io/dcu-devices-to-allocate" not in annotations
    assert handovers(binder) == 2.0  # given back when it was seen, and taken again


async def test_annotations_changed_after_the_last_check_are_overwritten_by_the_binding(
    hami: HamiCluster,
) -> None:
    node = await hami.add_node()
    await hami.add_pod("a", **{NVIDIA.to_allocate_key: "GPU-9,NVIDIA,99999,100:;"})
    pod = await hami.pod("a")
    given = Assignment({"NVIDIA": ((gpu(),),)}, {"GPU-0": 0})
    written = assignments.written(given, pod.metadata.uid, node, time.time())
    await hami.client.bind(hami.namespace, "a", pod.metadata.uid, node, annotations=written)

    bound = await hami.pod("a")
    assert bound.spec.node_name == node
    assert (
        assignments.rewritten_key(bound.metadata.annotations, given, pod.metadata.uid, node) == ""
    )
