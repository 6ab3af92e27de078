"""The order of waiters for a node's lock: by priority, and fair between namespaces."""

import time
from collections.abc import AsyncIterator, Callable

import pytest

from bindery.api.hami import names
from bindery.api.hami.lock import NodeLock
from bindery.kube.objects.resources import NAMESPACES, PODS
from bindery.kube.objects.watched import Pod
from devcluster.components import Component, Components
from tests.hami.hamicluster import HamiCluster, configuration

pytestmark = pytest.mark.e2e

Start = Callable[..., Component]


@pytest.fixture
async def other(hami: HamiCluster) -> AsyncIterator[HamiCluster]:
    """Another namespace of the same cluster."""
    cluster = HamiCluster(hami.client, f"{hami.namespace}-too")
    await hami.client.create(NAMESPACES, {"metadata": {"name": cluster.namespace}})
    yield cluster
    await hami.client.delete(NAMESPACES, cluster.namespace)


async def test_urgent_pods_and_other_namespaces_do_not_wait_for_a_long_queue(
    hami: HamiCluster, other: HamiCluster, start_binder: Start
) -> None:
    node = await hami.add_node()
    await hami.add_pod("holder")
    many = [f"many{number:02}" for number in range(20)]
    for cluster, pods in ((hami, [*many, "urgent"]), (other, ["few0", "few1"])):
        for name in pods:
            await cluster.add_pod(name)
    start_binder()

    async with hami.device_plugin(node, works=False) as plugin:
        await hami.request("holder", ["holder"], node)
        await hami.ended("holder")
        waiting: list[tuple[HamiCluster, str, list[str], int]] = [
            (hami, "many", many, 0),
            (other, "few", ["few0", "few1"], 0),
            (hami, "urgent", ["urgent"], 5),
        ]
        for cluster, name, pods, priority in waiting:
            await cluster.request(name, pods, node, priority=priority)
            for pod in pods:
                await cluster.until(PODS, pod, is_written, namespace=cluster.namespace)
        # The holder is not served any more: without it, the lock is free.
        plugin.works = True
        await hami.client.delete(PODS, "holder", hami.namespace, grace_period_s=0)
        await hami.ended("many", "urgent")
        await other.ended("few")
        await hami.until_unlocked(node)

    order = [served for _, served, _ in plugin.served]
    assert len(order) == 23
    # One of the many was first in the queue and stays so.
    assert order.index("urgent") < 4
    assert order.index("few1") < 8


async def test_a_namespace_with_few_pods_does_not_wait_for_writes_of_one_with_many(
    hami: HamiCluster, other: HamiCluster, components: Components
) -> None:
    node = await hami.add_node()
    await hami.add_pod("holder")
    await hami.set_lock(node, NodeLock(int(time.time()), hami.namespace, "holder").encode())
    many, few = [f"many{number}" for number in range(100)], ["few0", "few1"]
    for cluster, pods in ((hami, many), (other, few)):
        for name in pods:
            await cluster.add_pod(name)
    await hami.request("many", many, node)
    await other.request("few", few, node)

    one_at_a_time = configuration().model_copy(update={"concurrent_binds": 1})
    components.start_binder(one_at_a_time).wait_ready()
    for cluster, pods in ((hami, many), (other, few)):
        for name in pods:
            await cluster.until(PODS, name, is_written, namespace=cluster.namespace)

    # Nobody has written on them since, as somebody else has the lock.
    every = [
        pod
        for cluster in (hami, other)
        for pod in await hami.client.list(PODS, namespace=cluster.namespace)
    ]
    every.sort(key=lambda pod: int(pod.metadata.resource_version))
    order = [pod.metadata.name for pod in every]
    assert max(order.index(name) for name in few) < 50


def is_written(pod: Pod) -> bool:
    return names.BIND_PHASE in pod.metadata.annotations
