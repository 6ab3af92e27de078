"""Locks that a dead binder has left at pods that wait for them.

Found by the kill matrix (tests/e2e/test_e2e_kill_matrix.py).
"""

import asyncio
import time
from collections.abc import Callable

import pytest
from hamicluster import HamiCluster

from bindery.api.hami.lock import NodeLock
from bindery.controlplane.components import Component

pytestmark = pytest.mark.e2e

Start = Callable[..., Component]


async def test_a_lock_left_at_a_pod_further_back_in_the_queue_holds_up_nobody(
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
