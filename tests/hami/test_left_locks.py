"""Locks left by a dead binder, held by waiting pods or by deleted pods.

Found by the kill matrix (tests/e2e/test_kill_matrix.py) and by tests/e2e/chaos.
"""

import asyncio
import time
from collections.abc import Callable

import pytest

from bindery.api.hami.lock import NodeLock
from bindery.kube.objects.resources import PODS
from devcluster.components import Component
from tests.hami.hamicluster import HamiCluster

pytestmark = pytest.mark.e2e

Start = Callable[..., Component]


async def test_a_lock_held_by_a_later_pod_of_the_queue_delays_no_other(
    hami: HamiCluster, start_binder: Start
) -> None:
    node = await hami.add_node()
    pods = ["a", "b", "c"]
    for name in pods:
        await hami.add_pod(name)
    await hami.set_lock(node, NodeLock(int(time.time()), hami.namespace, "c").encode())
    start_binder()

    async with hami.device_plugin(node) as plugin:
        await hami.request("a", ["a"], node)
        await asyncio.gather(*(hami.request(name, [name], node) for name in pods[1:]))
        requests = await hami.ended(*pods)
        await hami.until_unlocked(node)

    assert {request.status.phase for request in requests} == {"Succeeded"}
    assert sorted(served[:2] for served in plugin.served) == [(name, name) for name in pods]


async def test_locks_of_deleted_or_ended_pods_are_released_without_waiters(
    hami: HamiCluster, start_binder: Start
) -> None:
    gone, ended, live, nobody = [await hami.add_node(number) for number in range(4)]
    for name in ("ended", "live"):
        await hami.add_pod(name)
    patch = {"status": {"phase": "Succeeded"}}
    await hami.client.patch(PODS, "ended", patch, namespace=hami.namespace, subresource="status")
    now_s = int(time.time())
    await hami.set_lock(gone, NodeLock(now_s, hami.namespace, "gone").encode())
    await hami.set_lock(ended, NodeLock(now_s, hami.namespace, "ended").encode())
    kept = {
        live: NodeLock(now_s, hami.namespace, "live").encode(),
        nobody: NodeLock(now_s - 10_000).encode(),
    }
    for node, value in kept.items():
        await hami.set_lock(node, value)

    start_binder()
    await hami.until_unlocked(gone)
    await hami.until_unlocked(ended)
    # One that comes while the binder leads, after it has looked at all that were there before.
    await hami.set_lock(gone, NodeLock(now_s, hami.namespace, "gone-too").encode())
    await hami.until_unlocked(gone)

    assert {node: await hami.lock(node) for node in kept} == kept
