"""Gangs that stay below their minimum, on the real API server."""

import asyncio

import pytest

from bindery.api.names import NODE_POOL_LABEL, POD_GROUP_ANNOTATION
from bindery.kube.objects.resources import NODES, Resource
from bindery.kube.objects.watched import KubeObject
from tests.e2e.support import Corner, Gang, Observer, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("binder", "scheduler")]

REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", True, KubeObject)
GRACE_S = 3


async def submit(corner: Corner, gang: Gang) -> None:
    """Create the PodGroup of `gang`, and its pods by a controller that replaces deleted pods."""
    await corner.create_group(gang)
    labels = {NODE_POOL_LABEL: corner.pool, "app": gang.name}
    container = {
        "name": "worker",
        "image": "worker",
        "resources": {"requests": {"cpu": gang.cpu}},
    }
    template = {
        "metadata": {"labels": labels, "annotations": {POD_GROUP_ANNOTATION: gang.name}},
        "spec": {
            "schedulerName": "bindery",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": gang.name, "namespace": corner.namespace},
        "spec": {
            "replicas": gang.size,
            "selector": {"matchLabels": {"app": gang.name}},
            "template": template,
        },
    }
    await corner.client.create(REPLICA_SETS, body, corner.namespace)


async def test_a_gang_that_stays_below_its_minimum_is_evicted_and_waits_whole(
    corner: Corner, observer: Observer
) -> None:
    nodes = await corner.add_nodes("a", "b", "c", cpu="1")
    gang = Gang("gang", size=3, group={"stalenessGracePeriodSeconds": GRACE_S})
    await submit(corner, gang)
    await corner.wait_bound(gang)
    before = {pod.metadata.name: pod.spec.node_name for pod in await corner.pods(gang)}
    (lost,) = [name for name, node in before.items() if node == nodes[2]]
    clock = asyncio.get_running_loop()

    await corner.client.patch(NODES, nodes[2], {"spec": {"unschedulable": True}})
    lost_at_s = clock.time()
    await corner.delete_pod(lost)

    async def is_warned() -> bool:
        condition = await corner.condition(gang)
        return condition is not None and "it is evicted after" in condition.message

    await wait_for(is_warned, "the gang says when it goes")

    async def came_back() -> bool:
        pods = await corner.pods(gang)
        return len(pods) == 3 and before.keys().isdisjoint(pod.metadata.name for pod in pods)

    await wait_for(came_back, "all pods have been replaced")
    assert clock.time() - lost_at_s >= GRACE_S
    # Two would have room; the gang has not.
    await corner.wait_pods_say(gang, "2 of 3 pods fit")
    assert await corner.bound_count(gang) == 0

    await corner.client.patch(NODES, nodes[2], {"spec": {"unschedulable": None}})
    await corner.wait_bound(gang)
    await corner.wait_nothing_left()
    assert len(observer.created_requests) == 2, "each time it was bound as one"
    await corner.client.delete(REPLICA_SETS, gang.name, corner.namespace)
