"""A plugin, a driver or a runtime that never answers holds its own pods and nothing else."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bindery.kube.client import Client
from bindery.kube.objects.resources import LEASES
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.node import RealNode
from tests.e2e.realnode.blows.load import Load, prepare
from tests.e2e.realnode.blows.otherside import HELD

pytestmark = pytest.mark.e2e

HANGS, ALONE, BESIDE = "hangs", "alone", "beside"
"""Roles: pods whose calls get no answer, pods without such, and pods beside them."""
CALLS = {
    "plain": ("cri RunPodSandbox", f"{HANGS}-plain"),
    "driven": ("csi NodeStageVolume", HANGS),
    "device": ("device Allocate", ""),
    "claimed": ("dra NodePrepareResources", ""),
}
"""Kind of a pod -> its call that gets no answer, and a word in the request."""
PODS = 50
LEASE_S = 40.0
"""After this time without its Lease, a node counts as lost."""


@pytest.mark.long("a hundred pods and calls that end by their deadlines take minutes")
@pytest.mark.timeout(1800)
async def test_what_never_answers_holds_no_other_pod_and_not_the_lease(
    cluster: RealCluster, node: RealNode, client: Client
) -> None:
    prepare(cluster, (HANGS,))
    load, held = Load(client, node.name), node.shared / HELD
    async with load.watched(), renewals(client, node.name) as renewed_s:
        alone_s = await all_run(load, ALONE)
        held.write_text(json.dumps(dict(CALLS.values())))
        for kind in CALLS:
            await load.create(kind, f"{HANGS}-{kind}", HANGS)

        beside_s = await all_run(load, BESIDE)

        assert running(load, HANGS) == 0
        held.unlink()
        # A kubelet, too, refuses a pod whose devices it did not get.
        await load.until(lambda: ended_or_running(load), "an answer is not taken")
    pauses_s = [after - before for before, after in itertools.pairwise(renewed_s)]
    print(f"{PODS} pods: {alone_s:.1f} s, {beside_s:.1f} s; longest pause {max(pauses_s):.1f} s")
    assert beside_s <= 3 * alone_s
    assert max(pauses_s) < LEASE_S


async def all_run(load: Load, role: str) -> float:
    """Create pods all at once; return the seconds until all run."""
    begun_s = time.monotonic()
    await asyncio.gather(
        *(load.create("plain", f"{role}-{number}", role) for number in range(PODS))
    )
    await load.until(
        lambda: running(load, role) == PODS,
        f"{role}: not all run",
    )
    return time.monotonic() - begun_s


def running(load: Load, role: str) -> int:
    return sum(one.get("phase") == "Running" for one in load.statuses(role).values())


def ended_or_running(load: Load) -> bool:
    found = load.statuses(HANGS)
    refused = found.pop(f"{HANGS}-device", {}).get("phase")
    others = {one.get("phase") for one in found.values()}
    return refused in ("Failed", "Running") and others == {"Running"}


@asynccontextmanager
async def renewals(client: Client, node: str) -> AsyncIterator[list[float]]:
    """Yield the times at which the Lease of a node was seen renewed."""
    times: list[float] = []

    async def read() -> None:
        last = None
        while True:
            lease = await client.get(LEASES, node, "kube-node-lease")
            if lease.spec.renew_time != last:
                last = lease.spec.renew_time
                times.append(time.monotonic())
            await asyncio.sleep(0.5)

    task = asyncio.create_task(read())
    try:
        yield times
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
