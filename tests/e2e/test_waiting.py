"""A waiting gang is reported where users look: conditions, events on pods, metrics."""

from collections.abc import Mapping
from typing import Any

import pytest

from bindery.api.states import PODS_NOT_RUNNING
from bindery.kube.client import PatchKind
from bindery.kube.objects.resources import NODES, PODS
from bindery.kube.objects.watched import Condition
from devcluster.components import Component
from tests.e2e.support import Corner, Gang, metric, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]


async def events_by_object(corner: Corner, reason: str) -> dict[str, int]:
    """Return kind and name of an object -> number of its events with `reason`."""
    found = await corner.events(reason)
    names = [f"{event.regarding['kind']}/{event.regarding['name']}" for event in found]
    return {name: names.count(name) for name in names}


async def test_a_gang_with_minimum_0_is_reported_as_waiting_if_no_pod_fits(
    corner: Corner, scheduler: Component
) -> None:
    await corner.add_nodes("a", cpu="2")
    queue = await corner.add_queue("web", {"resources": {"cpu": {"quota": "2"}}})
    web = Gang("web", size=2, min_member=0, cpu="9", queue=queue)
    await corner.submit(web)

    condition = await corner.wait_condition(web, "False", "Unschedulable")

    assert condition.message == "0/1 nodes are available: 1 have less cpu in all than requested"
    await corner.wait_pods_say(web, condition.message)

    async def told() -> bool:
        counts = await events_by_object(corner, "Unschedulable")
        return counts == {"PodGroup/web": 1, "Pod/web-0": 1}

    await wait_for(told, "the gang and one of its equal pods have an event")

    async def counted() -> bool:
        gangs = metric(scheduler, "bindery_queue_waiting_gangs", queue=queue)
        pods = metric(scheduler, "bindery_queue_waiting_pods", queue=queue)
        waits_s = metric(scheduler, "bindery_queue_longest_wait_seconds", queue=queue)
        return (gangs, pods) == (1, 2) and waits_s > 0

    await wait_for(counted, "the metrics count the gang")


async def test_a_large_gang_has_as_few_events_as_a_small_one(
    corner: Corner,
) -> None:
    await corner.add_nodes("a", cpu="2")
    large = Gang("large", size=150)
    await corner.submit(large)
    await corner.wait_condition(large, "False", "Unschedulable")

    async def told() -> bool:
        return "Pod/large-0" in await events_by_object(corner, "Unschedulable")

    await wait_for(told, "a pod of the gang has an event")
    counts = await events_by_object(corner, "Unschedulable")
    assert counts == {"PodGroup/large": 1, "Pod/large-0": 1}


async def node_is(corner: Corner, name: str, status: str) -> None:
    """Set the condition Ready of a node, since 2026-01-01."""
    ready = {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    body: Mapping[str, Any] = {"status": {"conditions": [ready]}}
    await corner.client.patch(NODES, name, body, subresource="status", kind=PatchKind.STRATEGIC)


async def not_running(corner: Corner, gang: Gang) -> Condition | None:
    """Return the condition of `gang` about bound pods that do not run."""
    conditions = (await corner.group(gang)).status.conditions or ()
    return next((each for each in conditions if each.type == PODS_NOT_RUNNING), None)


async def test_bound_pods_that_do_not_start_are_reported_with_the_reasons_of_their_nodes(
    corner: Corner,
) -> None:
    (name,) = await corner.add_nodes("a", cpu="2")
    gang = Gang("late", size=2)
    await corner.submit(gang)
    await corner.wait_bound(gang)
    await corner.wait_condition(gang, "True", "Scheduled")
    assert await not_running(corner, gang) is None

    async def told(reason: str, text: str) -> None:
        async def said() -> bool:
            condition = await not_running(corner, gang)
            return (
                condition is not None and condition.reason == reason and text in condition.message
            )

        await wait_for(said, f"the gang says {text}")

    async def untold() -> bool:
        return await not_running(corner, gang) is None

    await node_is(corner, name, "Unknown")
    await told("NodeNotReady", f"node {name} has not been ready since 2026-01-01T00:00:00Z")
    await node_is(corner, name, "True")
    await wait_for(untold, "the condition goes when the node is ready")
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    container = {
        "name": "worker",
        "image": "worker",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": waiting},
    }
    status = {"status": {"containerStatuses": [container]}}
    await corner.client.patch(
        PODS, "late-0", status, namespace=corner.namespace, subresource="status"
    )
    await told(
        "ImageNotPulled", "late-0: container worker: ImagePullBackOff: Back-off pulling image"
    )
    assert (await corner.group(gang)).status.state == "Running"


async def test_a_gang_with_deleted_pods_on_a_dead_node_reports_the_node_and_the_reason(
    corner: Corner,
) -> None:
    (name,) = await corner.add_nodes("dead", cpu="2")
    gang = Gang("unended", size=2)
    await corner.submit(gang)
    await corner.wait_bound(gang)
    await node_is(corner, name, "Unknown")
    pods = [pod.metadata.name for pod in await corner.pods(gang)]
    for pod in pods:
        await corner.client.delete(PODS, pod, corner.namespace, grace_period_s=30)

    condition = await corner.wait_condition(gang, "False", "PodsNotDeleted")

    assert "2 pods are being deleted (grace period until 20" in condition.message
    assert f"node {name} has not been ready since 2026-01-01T00:00:00Z" in condition.message
    for pod in pods:
        await corner.delete_pod(pod)
    condition = await corner.wait_condition(gang, "False", "NotEnoughPods")
    assert condition.message == "0 of 2 required pods exist"
