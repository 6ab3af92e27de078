"""Predictions that start from the reports of the exporter beside a kubelet with two zones."""

from collections.abc import Iterator
from random import Random

import pytest

from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES
from devcluster import nodeaccount
from devcluster.components import Component
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.node import RealNode
from tests.definitions import install_node_topologies
from tests.e2e.besideload import BesideLoad, Exporter
from tests.e2e.besideservice import BesideService
from tests.e2e.nodefiles import until
from tests.e2e.support import Corner, metric
from tests.e2e.virtualnode import zonepods
from tests.e2e.virtualnode.zoneworld import Setting
from tests.sizes import IS_LONG

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("binder")]

ALL = (Setting("single-numa-node"), Setting("restricted", "pod"), Setting("best-effort"))
SAMPLE = ALL[:1]
PODS, STARTING = (100, 4) if IS_LONG else (20, 1)
"""The pods of each setting, and how many of them start containers."""
TIMEOUT_S = 3600


@pytest.fixture(scope="module")
def agent(cluster: RealCluster, node: RealNode) -> Iterator[BesideService]:
    plane = cluster.control_plane
    with plane.network.entered():
        install_node_topologies(plane)
        nodeaccount.apply(plane)
        agent = BesideService(node)
        agent.start(plane)
    yield agent
    agent.kill()


async def start_kubelet(corner: Corner, node: RealNode, setting: Setting) -> None:
    """Start the kubelet with `setting`, and wait until the exporter has seen it."""
    node.reconfigure(setting.kubelet)
    wanted = [setting.policy, setting.scope]

    async def is_reported() -> bool:
        for report in await corner.client.list(NODE_RESOURCE_TOPOLOGIES):
            names = ("topologyManagerPolicy", "topologyManagerScope")
            if [report.attribute(name) for name in names] == wanted:
                return all("cpu" in [each.name for each in zone.resources] for zone in report.zones)
        return False

    await until(is_reported, f"the report has {setting}")


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("setting", ALL if IS_LONG else SAMPLE, ids=str)
async def test_predictions_that_start_from_the_exporter_are_right(
    corner: Corner, node: RealNode, agent: BesideService, scheduler: Component, setting: Setting
) -> None:
    """The exporter is killed, halted and started again, and foreign pods take their part."""
    random = Random(str(setting))

    def pod(name: str, starts: bool) -> dict[str, object]:
        return zonepods.pod(random, name, node.name, starts=starts)

    await start_kubelet(corner, node, setting)
    load = BesideLoad(corner, node, agent, random, pod)
    before = metric(scheduler, "bindery_numa_predictions_wrong_total")

    await load.play(PODS, STARTING)

    counted = metric(scheduler, "bindery_numa_predictions_wrong_total") - before
    print(f"{setting}: {PODS} pods, {counted:.0f} counted as wrong, {load.summary()}")
    assert not load.wrong[Exporter.ON], "\n".join(load.wrong[Exporter.ON])
    assert load.counts[Exporter.ON, "planned admitted"] >= PODS / 10
