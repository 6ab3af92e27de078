"""The agent beside a real kubelet: what it reports, also while it or the kubelet is away."""

import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pytest

from bindery.api import numadetail
from bindery.api.names import HOSTNAME_LABEL, NUMA_DETAIL_ANNOTATION, NUMA_ZONES_ANNOTATION
from bindery.api.numadetail import NumaDetail
from bindery.kube.client import Client
from bindery.kube.objects.nodetopologies import NODE_RESOURCE_TOPOLOGIES, NodeResourceTopology
from bindery.kube.objects.resources import PODS
from devcluster import nodeaccount
from devcluster.components import Component, Components
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.images import BUSYBOX
from devcluster.realnode.node import RealNode
from devcluster.realnode.plane import RealControlPlane
from tests.definitions import install_node_topologies
from tests.e2e.besideload import BesideLoad, Exporter, without_start
from tests.e2e.besideservice import BesideProcess
from tests.e2e.realnode import strictnode
from tests.e2e.realnode.realdevices import LISTED, Devices
from tests.e2e.realnode.realpods import DEVICE, wait_running
from tests.e2e.realnode.strictnode import KUBELET, TOLERATED
from tests.e2e.realnode.strictnode import NAME as NODE
from tests.e2e.support import Corner, Gang, metric, wait_for
from tests.sizes import IS_LONG

pytestmark = pytest.mark.e2e

MIB = 1 << 20
PREDICTIONS = "bindery_numa_predictions"
_KUBELET = "var/lib/kubelet"


@pytest.fixture(scope="module")
def node(cluster: RealCluster) -> Iterator[RealNode]:
    with strictnode.added(cluster) as node:
        Devices(node, 2, zone=0).write()
        yield node


@pytest.fixture(scope="module")
def agent(cluster: RealCluster, node: RealNode, module_components: Components) -> Component:
    plane = cluster.control_plane
    with plane.network.entered():
        install_node_topologies(plane)
        nodeaccount.apply(plane)
        directory = node.root / _KUBELET
        beside = module_components.start_beside(NODE, directory, node.kubelet_configuration)
        return beside.wait_ready()


def pod(name: str, limits: Mapping[str, str], **fields: Any) -> dict[str, Any]:
    """Return a pod that is bound without a scheduler."""
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 1,
            "tolerations": TOLERATED,
            "containers": [
                {
                    "name": "app",
                    "image": BUSYBOX,
                    "command": ["sh", "-c", "trap exit TERM; sleep 600 & wait"],
                    "resources": {"limits": limits},
                }
            ],
            **fields,
        },
    }


async def report(client: Client) -> NodeResourceTopology:
    return await client.get(NODE_RESOURCE_TOPOLOGIES, NODE)


async def detail(client: Client) -> NumaDetail:
    return numadetail.decode((await report(client)).metadata.annotations[NUMA_DETAIL_ANNOTATION])


async def wait_listed(client: Client, *uids: str, absent: tuple[str, ...] = ()) -> NumaDetail:
    async def is_listed() -> NumaDetail | None:
        found = await detail(client)
        listed = set(found.pods)
        return found if set(uids) <= listed and not set(absent) & listed else None

    found = await wait_for(is_listed, f"the report lists {uids} and not {absent}")
    assert found is not None
    return found


async def create(corner: Corner, name: str, limits: Mapping[str, str]) -> str:
    made = await corner.client.create(PODS, pod(name, limits), corner.namespace)
    return made.metadata.uid


def checkpoint(node: RealNode, name: str) -> Any:
    return json.loads(node.run("cat", f"/{_KUBELET}/{name}"))


async def amounts(client: Client) -> dict[str, tuple[int, int]]:
    """Return resource -> allocatable and available, of the only zone."""
    (zone,) = (await report(client)).zones
    return {one.name: (int(one.allocatable), int(one.available)) for one in zone.resources}


async def test_the_report_is_what_the_checkpoints_have(
    corner: Corner, agent: Component, node: RealNode
) -> None:
    """The pods are foreign ones: they have no record of a plan."""
    exclusive = await create(corner, "exclusive", {"cpu": "1", "memory": "64Mi", LISTED: "1"})
    shared = await create(corner, "shared", {"memory": "16Mi", DEVICE: "1"})

    found = await wait_listed(corner.client, exclusive, shared)

    cpus, memory = (checkpoint(node, f"{name}_manager_state") for name in ("cpu", "memory"))
    devices = checkpoint(node, "device-plugins/kubelet_internal_checkpoint")["Data"]
    assert list(cpus["entries"]) == [exclusive]
    table = memory["machineState"]["0"]["memoryMap"]["memory"]
    shown = await amounts(corner.client)
    assert shown["cpu"] == (1, 0)
    assert shown["memory"] == (table["allocatable"], table["free"])
    assert shown[LISTED] == (2, 1)
    assert found.free == ""
    assert found.cpu_manager_policy == "static"
    assert found.held is not None
    assert found.held[exclusive].held == {"node-0": {"cpu": 1, LISTED: 1, "memory": 64 * MIB}}
    assert shared not in found.held, "the sample plugin reports no zone for its devices"
    given = {
        one
        for entry in devices["PodDeviceEntries"]
        for ids in entry["DeviceIDs"].values()
        for one in ids
    }
    registered = {one for ids in devices["RegisteredDevices"].values() for one in ids}
    free = {one for zones in found.devices.values() for ids in zones.values() for one in ids}
    assert free == registered - given
    attributes = {one.name: one.value for one in (await report(corner.client)).attributes}
    assert attributes["topologyManagerPolicy"] == KUBELET["topologyManagerPolicy"]

    await corner.client.delete(PODS, "exclusive", corner.namespace)
    await wait_listed(corner.client, shared, absent=(exclusive,))
    assert (await amounts(corner.client))["cpu"] == (1, 1)


async def test_a_report_is_complete_again_after_the_agent_was_killed(
    corner: Corner, agent: Component
) -> None:
    """Meanwhile the last report stays, and a restart finds what came and went."""
    before = await create(corner, "before", {"cpu": "1", "memory": "32Mi"})
    await wait_listed(corner.client, before)

    agent.kill()
    await corner.client.delete(PODS, "before", corner.namespace)
    during = await create(corner, "during", {"memory": "32Mi", LISTED: "2"})
    await wait_phase_of(corner, "during", "Running")
    assert (await detail(corner.client)).pods.count(before) == 1
    assert during not in (await detail(corner.client)).pods

    agent.restart()
    await wait_listed(corner.client, during, absent=(before,))
    shown = await amounts(corner.client)
    assert shown["cpu"] == (1, 1)
    assert shown[LISTED] == (2, 0)


async def test_a_kubelet_that_is_away_is_named_and_its_devices_stay(
    corner: Corner, agent: Component, node: RealNode, control_plane: RealControlPlane
) -> None:
    holds = await create(corner, "holds", {"memory": "32Mi", LISTED: "1"})
    await wait_listed(corner.client, holds)
    node.hold("kubelet")
    node.kill("kubelet")

    async def is_named() -> bool:
        return metric(agent, "bindery_beside_problems", source="podresources") == 1

    try:
        await wait_for(is_named, "the agent misses the socket", 60)
        assert (await amounts(corner.client))[LISTED] == (2, 1)
        events = ("get", "events", "--all-namespaces", "--field-selector=reason=KubeletNotReadable")
        await wait_for(
            lambda: said(control_plane, events, "the devices are believed as they were"),
            "the Node has an event",
        )
    finally:
        node.release("kubelet")

    async def is_back() -> bool:
        return not metric(agent, "bindery_beside_problems", source="podresources")

    await wait_for(is_back, "the agent reads the socket again", 60)
    await wait_listed(corner.client, holds)


async def test_a_kubelet_with_another_policy_is_reported_with_it(
    corner: Corner, agent: Component, node: RealNode
) -> None:
    node.reconfigure({**KUBELET, "topologyManagerPolicy": "restricted", "cpuManagerPolicy": "none"})

    async def has_changed() -> bool:
        found = await report(corner.client)
        return found.attribute("topologyManagerPolicy") == "restricted"

    try:
        await wait_for(has_changed, "the report has the new policy", 60)
        assert "cpu" not in await amounts(corner.client)
        assert (await detail(corner.client)).cpu_manager_policy == "none"
    finally:
        node.reconfigure(KUBELET)

    async def is_back() -> bool:
        found = await report(corner.client)
        return found.attribute("topologyManagerPolicy") == str(KUBELET["topologyManagerPolicy"])

    await wait_for(is_back, "the report has the old policy", 60)


@pytest.mark.usefixtures("binder")
async def test_predictions_start_from_the_reports_and_none_is_wrong(
    corner: Corner, agent: Component, scheduler: Component
) -> None:
    """Pods come and go, each with a CPU of its own; a foreign one takes it for a while."""
    for number in range(4):
        name = f"planned-{number}"
        spec = pod(name, {"cpu": "1", "memory": "16Mi", LISTED: "1"})["spec"]
        del spec["nodeName"]
        gang = Gang(name, 1, pod=spec)
        foreign = await create(corner, f"foreign-{number}", {"cpu": "1", "memory": "16Mi"})
        await wait_listed(corner.client, foreign)
        await corner.submit(gang)
        await corner.client.delete(PODS, f"foreign-{number}", corner.namespace)
        ((uid, running),) = (await wait_running(corner, gang, 1)).items()
        assert NUMA_ZONES_ANNOTATION in running.metadata.annotations
        await wait_listed(corner.client, uid, absent=(foreign,))
        await corner.client.delete(PODS, running.metadata.name, corner.namespace)
        await wait_listed(corner.client, absent=(uid,))

    async def all_count() -> bool:
        return metric(scheduler, f"{PREDICTIONS}_total") >= 4

    await wait_for(all_count, "the scheduler has counted the predictions")
    assert metric(scheduler, f"{PREDICTIONS}_wrong_total") == 0


@pytest.mark.usefixtures("binder")
@pytest.mark.timeout(3600)
async def test_predictions_of_random_pods_are_right_with_the_exporter_on(
    corner: Corner, agent: Component, node: RealNode, scheduler: Component
) -> None:
    """The exporter is killed, halted and started again, and foreign pods take their part."""
    random = Random(1)

    def drawn(name: str, starts: bool) -> dict[str, Any]:
        limits = {
            "cpu": random.choice(("1", "1", "1", "250m")),
            "memory": f"{random.randint(16, 300)}Mi",
        }
        if devices := random.choice((0, 0, 1, 2)):
            limits[LISTED] = str(devices)
        body = pod(name, limits, nodeSelector={HOSTNAME_LABEL: NODE})
        return body if starts else {**body, "spec": without_start(body["spec"])}

    load = BesideLoad(corner, node, BesideProcess(agent), random, drawn)
    before = metric(scheduler, f"{PREDICTIONS}_wrong_total")

    await load.play(*((300, 12) if IS_LONG else (20, 2)))

    counted = metric(scheduler, f"{PREDICTIONS}_wrong_total") - before
    print(f"{counted:.0f} counted as wrong, {load.summary()}")
    assert not load.wrong[Exporter.ON], "\n".join(load.wrong[Exporter.ON])
    assert load.counts[Exporter.ON, "planned admitted"] >= 2


async def said(plane: RealControlPlane, command: tuple[str, ...], text: str) -> bool:
    return text in plane.kubectl(*command)


async def wait_phase_of(corner: Corner, name: str, phase: str) -> None:
    async def has_it() -> bool:
        found = await corner.client.get(PODS, name, corner.namespace)
        return found.status.phase == phase

    await wait_for(has_it, f"{name} is {phase}")
