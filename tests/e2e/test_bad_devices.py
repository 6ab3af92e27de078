"""Invalid device requests are refused with the reason at the pod or claim; other work continues.

Invalid shares of GPUs are in `test_gpu_sharing` and `test_webhook`, unreadable registers and
requests in tests/hami. No webhook runs here: the scheduler itself reports the errors.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bindery.api.configuration import PluginConfiguration
from bindery.api.hami import names, nodedevices
from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.vendortable import NVIDIA
from bindery.kube.objects.claims import RESOURCE_CLAIMS
from bindery.kube.objects.resources import NODES, PODS
from devcluster.components import Component, Components
from fakes.hami import HamiDevicePlugin
from tests.e2e.dracorner import Driver, gpus, named, refusal
from tests.e2e.support import Corner, Gang, binder_configuration, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]

LOOPS = "[1,2,3,4,5,6,7,8,9]"
NESTED = (
    f"{LOOPS}.all(a, {LOOPS}.all(b, {LOOPS}.all(c, {LOOPS}.all(d, {LOOPS}.all(e, a+b+c+d+e > 0)))))"
)


@pytest.fixture(scope="module")
def binder(module_components: Components) -> Component:
    plugins = (PluginConfiguration(name="dra"), PluginConfiguration(name="hami"))
    return module_components.start_binder(binder_configuration(*plugins)).wait_ready()


@pytest.fixture(autouse=True)
async def another_gang_still_binds(corner: Corner) -> AsyncIterator[None]:
    """After each test, while what is wrong still waits: others go on."""
    yield
    await corner.add_nodes("others", cpu="2")
    gang = Gang("others", size=2)
    await corner.submit(gang)
    await corner.wait_bound(gang)


@pytest.fixture
async def driver(corner: Corner) -> AsyncIterator[Driver]:
    driver = Driver(corner)
    await driver.make_class()
    yield driver
    await driver.clean()


async def add_hami_node(corner: Corner) -> str:
    """Create a node with one card of 10000 MiB and ten shares."""
    (node,) = await corner.add_nodes("hami", cpu="8")
    card = NodeDevice(
        id="GPU-0", count=10, memory_mib=10_000, cores=100, type="NVIDIA-T4", healthy=True
    )
    register = {NVIDIA.register_key: nodedevices.encode_json([card])}
    await corner.client.patch(NODES, node, {"metadata": {"annotations": register}})
    offered = {NVIDIA.count_resource: "10"}
    status = {"capacity": offered, "allocatable": offered}
    await corner.client.patch(NODES, node, {"status": status}, subresource="status")
    return node


@asynccontextmanager
async def device_plugin(corner: Corner, node: str) -> AsyncIterator[HamiDevicePlugin]:
    plugin = HamiDevicePlugin(corner.client, node)
    task = asyncio.create_task(plugin.run())
    try:
        yield plugin
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def asking(memory_mib: int) -> Mapping[str, Any]:
    limits = {NVIDIA.count_resource: "1", NVIDIA.memory_resource: str(memory_mib)}
    return {"containers": [{"name": "c", "image": "c", "resources": {"limits": limits}}]}


async def annotate(corner: Corner, pod: str, annotations: Mapping[str, str | None]) -> None:
    patch = {"metadata": {"annotations": annotations}}
    await corner.client.patch(PODS, pod, patch, namespace=corner.namespace)


async def test_a_pod_with_forged_device_annotations_is_refused_until_they_are_removed(
    corner: Corner,
) -> None:
    node = await add_hami_node(corner)
    forged = {NVIDIA.allocated_key: "GPU-0,NVIDIA,1,0:;", names.ASSIGNED_NODE: node}
    gang = Gang("forged", size=1, pod=asking(4000), annotations=forged)
    idler = Gang("idler", size=1, annotations={NVIDIA.to_allocate_key: "no device at all"})
    await corner.submit(gang, idler)

    for refused in (gang, idler):
        condition = await corner.wait_condition(refused, "False", "InvalidDeviceRequest")
        assert "is written by the binder only" in condition.message
        await corner.wait_pods_say(refused, "is written by the binder only")

    async with device_plugin(corner, node) as plugin:
        await annotate(corner, "forged-0", dict.fromkeys(forged))
        await corner.wait_bound(gang)

        async def served() -> bool:
            return bool(plugin.served)

        await wait_for(served, "the device plugin has served it")
    assert plugin.served == [("forged-0", "forged-0", "GPU-0,NVIDIA,4000,0:;")]


@pytest.mark.parametrize("text", ["", "GPU-0,NVIDIA", "GPU-0,NVIDIA,1,0:;"])
async def test_changed_device_annotations_of_a_bound_pod_free_no_device_memory(
    corner: Corner, text: str
) -> None:
    node = await add_hami_node(corner)
    async with device_plugin(corner, node):
        first = Gang("first", size=1, cpu="1", pod=asking(8000))
        await corner.submit(first)
        await corner.wait_bound(first)
        await annotate(corner, "first-0", {NVIDIA.allocated_key: text})

        second = Gang("second", size=1, pod=asking(8000))
        await corner.submit(second)
        await corner.wait_pods_say(second, "CardInsufficientMemory")
        await corner.delete_pod("first-0")
        await corner.wait_bound(second)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("cel.bind(d, device, d.driver != '')", "CEL compile error"),
        (NESTED, "Iteration budget exceeded"),
        ("device.attributes['nobody.example.com'].size > 3", "CEL runtime error"),
    ],
    ids=["does not compile here", "runs too long", "fails for the device"],
)
async def test_an_unusable_selector_is_reported_at_the_pod_with_its_position(
    corner: Corner, driver: Driver, expression: str, said: str
) -> None:
    """The API server has let them through."""
    (node,) = await corner.add_nodes("a", cpu="8")
    await driver.publish(node, gpus(2))
    await driver.make_claim("odd", selectors=[{"cel": {"expression": expression}}])
    await driver.make_claim("fine")
    odd, fine = (Gang(name, size=1, pod=named(name)) for name in ("odd", "fine"))
    await corner.submit(odd, fine)

    await corner.wait_bound(fine)
    await corner.wait_pods_say(odd, said)
    await corner.wait_pods_say(odd, "request gpu: selector #0")
    assert (await driver.claim("odd")).status.allocation is None


async def test_a_bind_request_for_a_claim_of_another_namespace_is_refused(
    corner: Corner, driver: Driver
) -> None:
    (node,) = await corner.add_nodes("a", cpu="8")
    await driver.publish(node, gpus(1))  # so that nothing but the claim is wrong
    foreign = f"foreign-{corner.namespace}"
    await driver.make_claim(foreign, "default")
    try:
        claim = await corner.client.get(RESOURCE_CLAIMS, foreign, "default")
        gang = Gang("gated", size=1, pod={"schedulingGates": [{"name": "test/held"}]})
        await corner.submit(gang)
        (pod,) = await corner.pods(gang)
        for number, name in enumerate((foreign, f"../../default/resourceclaims/{foreign}")):
            result = {"request": "gpu", "driver": driver.name, "pool": node, "device": "gpu-0"}
            planned = {
                "name": name,
                "uid": claim.metadata.uid,
                "allocation": {"devices": {"results": [result]}},
            }
            binding = {
                "podName": pod.metadata.name,
                "podUID": pod.metadata.uid,
                "selectedNode": node,
                "pluginData": {"dra": {"claims": [planned]}},
            }
            message = await refusal(corner, f"forged-{number}", binding)
            assert f"resource claim {name} does not exist" in message
        found = await corner.client.get(RESOURCE_CLAIMS, foreign, "default")
        assert found.metadata.resource_version == claim.metadata.resource_version
    finally:
        await corner.client.delete(RESOURCE_CLAIMS, foreign, "default")
