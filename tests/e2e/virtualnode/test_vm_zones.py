"""A real kubelet places pods on NUMA zones as predicted."""

from random import Random

import pytest

from bindery.kube.client import Client
from devcluster.realnode.cluster import RealCluster
from tests.e2e.virtualnode import zonepods
from tests.e2e.virtualnode.zoneworld import Setting, ZoneWorld
from tests.sizes import IS_LONG

pytestmark = pytest.mark.e2e

POLICIES = ("best-effort", "restricted", "single-numa-node")
ALL = (
    Setting("none"),
    *(Setting(policy, scope) for policy in POLICIES for scope in ("container", "pod")),
)
SAMPLE = (Setting("single-numa-node"), Setting("restricted", "pod"))
PODS, STARTING = (43, 2) if IS_LONG else (15, 1)
"""The pods of each setting, and how many of the admitted ones start containers."""
TIMEOUT_S = 3600


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("setting", ALL if IS_LONG else SAMPLE, ids=str)
async def test_a_kubelet_treats_every_pod_as_predicted(
    cluster: RealCluster, client: Client, namespace: str, setting: Setting
) -> None:
    """Pods arrive, end and are refused in a random order, which the setting decides."""
    random = Random(str(setting))
    world = ZoneWorld(cluster, client, namespace, setting)
    await world.start()
    for number in range(PODS):
        starts = world.counts["started"] < STARTING * (number + 1) / PODS
        await world.arrive(zonepods.pod(random, f"pod-{number}", world.node, starts=starts))
        if world.is_full or random.random() < 1 / 8:
            await world.check_cgroups()
            await world.end(random, random.choice((0.4, 0.7, 1.0)))
    await world.check_cgroups()
    await world.end(random, 1.0)

    print(f"{setting}: {PODS} pods, {dict(world.counts)}, {len(world.wrong)} wrong")
    assert not world.wrong, "\n".join(world.wrong)
    assert world.counts["admitted"] > PODS / 4
    assert world.counts["started"] >= STARTING
