"""The other side kills the agent again and again; a node is afterwards as one that was left alone.

CSI driver, device plugin, DRA driver and runtime kill it when its calls arrive, before they answer
and after, and a watch of its directory between a temporary file and its renaming.
"""

import asyncio
import json
import os
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest

from bindery.kube.client import Client
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.node import RealNode
from tests.e2e.realnode.blows.dealing import Dealing
from tests.e2e.realnode.blows.left import differences, left
from tests.e2e.realnode.blows.load import MOVES, NAMESPACE, STAYS, Load, prepare

pytestmark = pytest.mark.e2e

BLOWS = int(os.environ.get("BINDERY_BLOWS", "100"))
BLOWS_OF_A_ROUND = 10
CYCLES = 2
QUIET_S = 90.0
LOOK_S = 5.0

Left = Mapping[str, list[str]]


@pytest.mark.long("a hundred kills of an agent take a quarter of an hour")
@pytest.mark.timeout(2 * 3600)
async def test_a_node_is_as_if_its_agent_had_never_been_killed(
    cluster: RealCluster, node: RealNode, client: Client
) -> None:
    seed = int(os.environ.get("BINDERY_SEED", secrets.randbelow(1 << 32)))
    print(f"BINDERY_SEED={seed}")
    dealing = Dealing(node, Random(seed), BLOWS)
    prepare(cluster, (STAYS, MOVES))
    await undisturbed(client, node)  # the driver makes its files at their first use
    full, empty = await undisturbed(client, node)

    wrong, set_aside = {}, Counter[str]()
    while (missing := BLOWS - dealing.dealt.total()) > 0:
        load = Load(client, node.name)
        async with load.watched():
            async with asyncio.TaskGroup() as group:
                group.create_task(load.settle())
                group.create_task(load.move())
                await dealing.deal(min(missing, BLOWS_OF_A_ROUND), load)
                load.stop()
            with_pods = await lasting_differences(client, node, full)
            replaced = load.replaced()
            await load.leave()
        without_pods = await lasting_differences(client, node, empty)
        found = {"with pods": with_pods, "without pods": without_pods, "replaced": replaced}
        print(json.dumps(found, indent=1), load.cycles, flush=True)
        set_aside.update(load.set_aside)
        if any(found.values()):
            wrong[dealing.dealt.total()] = found

    for (call, moment), count in sorted(dealing.dealt.items()):
        print(f"{count} {call}, {moment}")
    print("made again:", *set_aside.items(), sep="\n")
    assert wrong == {}
    assert "Traceback" not in (node.logs / "kubelet.log").read_text()


async def undisturbed(client: Client, node: RealNode) -> tuple[Left, Left]:
    """Play the load without blows; return what is there with the pods that stay, and without."""
    load = Load(client, node.name)
    async with load.watched():
        await load.settle()
        await load.move(CYCLES)
        full = await steady(client, node)
        await load.leave()
    assert load.set_aside == []
    return full, await steady(client, node)


async def steady(client: Client, node: RealNode) -> Left:
    """Return what is on the node when it does not change any more."""
    found = await left(client, NAMESPACE, node)
    deadline_s = time.monotonic() + QUIET_S
    while True:
        await asyncio.sleep(2 * LOOK_S)
        before, found = found, await left(client, NAMESPACE, node)
        if found == before:
            return found
        assert time.monotonic() < deadline_s, differences(before, found)


async def lasting_differences(
    client: Client, node: RealNode, undisturbed: Left
) -> dict[str, list[str]]:
    """Return what still differs after a quiet time."""
    deadline_s = time.monotonic() + QUIET_S
    while True:
        answer = differences(undisturbed, await left(client, NAMESPACE, node))
        if not answer or time.monotonic() > deadline_s:
            return answer
        await asyncio.sleep(LOOK_S)
