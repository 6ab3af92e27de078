"""Gangs on nodes with device plugins that grow, shrink, die and refuse allocations."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from bindery.kube.client import Client
from bindery.kube.objects.resources import NODES
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.node import RealNode
from tests.e2e.realnode import strictnode
from tests.e2e.realnode.realdevices import LISTED, SERVICE, Devices
from tests.e2e.realnode.realpods import logs, running, wait_phase, wait_running
from tests.e2e.support import Corner, Gang, Observer, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

_READ_S = 1.0
"""The plugin and its kubelet have taken note of other devices after this time."""


@pytest.fixture(scope="module")
def node(cluster: RealCluster) -> Iterator[RealNode]:
    with strictnode.added(cluster) as node:
        yield node


@pytest.fixture
async def devices(node: RealNode, client: Client) -> AsyncIterator[Devices]:
    """Two devices, and none afterwards."""
    devices = Devices(node, 2).write()
    await wait_offered(client, 2)
    yield devices
    node.release(SERVICE)
    Devices(node, 0).write()
    await wait_offered(client, 0)


def gang(name: str, size: int) -> Gang:
    """Return a gang whose pods have one device each."""
    pod = running("echo $DEVICES; sleep 600", devices=1, resource=LISTED)
    return Gang(name, size, pod={**pod, "tolerations": strictnode.TOLERATED})


async def wait_offered(client: Client, count: int) -> None:
    async def is_offered() -> bool:
        found = await client.get(NODES, strictnode.NAME)
        return (found.status.allocatable or {}).get(LISTED, "0") == str(count)

    await wait_for(is_offered, f"the node has {count} devices")


async def test_a_gang_waits_until_a_device_plugin_adds_devices(
    corner: Corner, observer: Observer, devices: Devices, cluster: RealCluster
) -> None:
    devices.write(healthy=1)
    await wait_offered(corner.client, 1)
    grown = gang("grown", 2)
    await corner.submit(grown)
    await corner.wait_condition(grown, "False", "Unschedulable")

    devices.write(healthy=2)

    await wait_phase(corner, grown, "Running")
    found = sorted(logs(cluster, corner, f"grown-{index}").strip() for index in range(2))
    assert found == ["d0", "d1"]


async def test_unhealthy_devices_stay_with_their_pods_and_are_not_allocated_again(
    corner: Corner, observer: Observer, devices: Devices
) -> None:
    first = gang("first", 2)
    await corner.submit(first)
    await wait_phase(corner, first, "Running")

    devices.write(healthy=1, unhealthy=1)
    await wait_offered(corner.client, 1)
    second = gang("second", 1)
    await corner.submit(second)

    await corner.wait_condition(second, "False", "Unschedulable")
    await wait_running(corner, first, 2)
    assert not await corner.events("Evicted")
    devices.write(healthy=3)
    await wait_phase(corner, second, "Running")


async def test_a_gang_waits_while_a_device_plugin_is_dead(
    corner: Corner, observer: Observer, devices: Devices
) -> None:
    devices.node.hold(SERVICE)
    devices.node.kill(devices.program())
    await wait_offered(corner.client, 0)
    patient = gang("patient", 2)
    await corner.submit(patient)
    await corner.wait_condition(patient, "False", "Unschedulable")

    devices.node.release(SERVICE)

    await wait_phase(corner, patient, "Running")


async def test_a_refusal_by_a_device_plugin_is_reported_and_equal_gangs_avoid_the_node(
    corner: Corner, observer: Observer, devices: Devices
) -> None:
    devices.write(refusal="no such luck")

    await is_refused(corner, "UnexpectedAdmissionError", gang("refused", 1), gang("like", 1))

    devices.write(healthy=3)  # another offer of the node ends the wait
    await wait_phase(corner, gang("like", 1), "Running")


async def test_a_topology_affinity_error_is_reported_and_equal_gangs_avoid_the_node(
    corner: Corner, observer: Observer, devices: Devices
) -> None:
    """The policy is single-numa-node; the devices report a zone without CPUs."""
    devices.write(zone=1)
    exact = {"cpu": "1", "memory": "8Mi", LISTED: "1"}

    def exclusive(name: str) -> Gang:
        made = gang(name, 1)
        made.pod["containers"][0]["resources"] = {"requests": exact, "limits": exact}
        return made

    await is_refused(corner, "TopologyAffinityError", exclusive("refused"), exclusive("like"))

    devices.write(zone=0, healthy=3)
    await wait_phase(corner, exclusive("like"), "Running")


async def is_refused(corner: Corner, reason: str, refused: Gang, like: Gang) -> None:
    """Submit a gang that its kubelet refuses, and one like it, which waits."""
    await asyncio.sleep(_READ_S)
    await corner.submit(refused)
    await wait_phase(corner, refused, "Failed")

    async def is_told() -> bool:
        condition = await corner.condition(refused)
        return condition is not None and reason in condition.message

    await wait_for(is_told, f"the PodGroup of {refused.name} has {reason}")
    await corner.submit(like)
    await corner.wait_pods_say(like, "refused an equal pod")
    assert await corner.bound_count(like) == 0
