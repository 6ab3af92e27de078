"""Shares of GPUs, from the annotation to the container's environment and to their release."""

import asyncio

import pytest

from bindery.api.gpushare import WHOLE, GpuShare, Grant, groups, read_record
from bindery.binder.plugins.gpusharing.objects import SHARERS
from devcluster.components import Component, Components
from fakes.reservations import GpuDevicePlugins
from tests.e2e.gpunodes import (
    HALF,
    bound,
    environment,
    sharing,
    start_gpu_nodes,
    submit_share,
    wait_reservations,
)
from tests.e2e.support import Corner, Gang, binder_configuration

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler")]


@pytest.fixture(scope="module")
def binder(module_components: Components) -> Component:
    return module_components.start_binder(binder_configuration(sharing())).wait_ready()


@pytest.mark.usefixtures("binder")
async def test_two_pods_share_a_gpu_and_the_last_pod_releases_its_reservation(
    corner: Corner, components: Components, stand_in: GpuDevicePlugins
) -> None:
    start_gpu_nodes(components, corner, 1, gpus=2).wait_ready()
    for name in ("a", "b", "c"):
        await submit_share(corner, name, HALF)
        await bound(corner, name)
    a, b, c = await bound(corner, "a", "b", "c")

    assert groups(a.metadata.labels) == groups(b.metadata.labels) != groups(c.metadata.labels)
    told = [await environment(corner, pod) for pod in (a, b, c)]
    assert [each["NVIDIA_VISIBLE_DEVICES"] for each in told] == ["0", "0", "1"]
    assert {each["GPU_PORTION"] for each in told} == {"0.50"}
    assert a.metadata.annotations["received-resource-type"] == "Fraction"
    granted = read_record(a.metadata.annotations, a.metadata.uid)
    assert granted == Grant(GpuShare(portion=WHOLE // 2), groups(a.metadata.labels))
    await wait_reservations(stand_in, 2)

    await corner.delete_pod("a-0")
    await submit_share(corner, "d", HALF)
    (d,) = await bound(corner, "d")
    assert groups(d.metadata.labels) in (groups(b.metadata.labels), groups(c.metadata.labels))
    assert stand_in.ever_given == 2

    for name in ("b-0", "c-0", "d-0"):
        await corner.delete_pod(name)
    await wait_reservations(stand_in, 0)


@pytest.mark.usefixtures("binder")
async def test_a_pod_gets_parts_of_several_gpus(
    corner: Corner, components: Components, stand_in: GpuDevicePlugins
) -> None:
    start_gpu_nodes(components, corner, 1, gpus=3).wait_ready()
    await submit_share(corner, "two", {**HALF, "gpu-fraction-num-devices": "2"})
    (two,) = await bound(corner, "two")

    assert len(groups(two.metadata.labels)) == 2
    assert (await environment(corner, two))["NVIDIA_VISIBLE_DEVICES"] in ("0,1", "1,0")
    whole = Gang("whole", size=1, pod={"containers": [_whole()]})
    await corner.submit(whole)
    await corner.wait_bound(whole)
    more = Gang("more", size=1, pod={"containers": [_whole()]})
    await corner.submit(more)
    await corner.wait_pods_say(more, "have GPUs free only in part")


@pytest.mark.usefixtures("binder")
async def test_invalid_shares_are_reported_at_the_pod(
    corner: Corner, components: Components, stand_in: GpuDevicePlugins
) -> None:
    start_gpu_nodes(components, corner, 1, gpus=1).wait_ready()
    await submit_share(corner, "more", {"gpu-fraction": "1.5"})
    await submit_share(corner, "both", {**HALF, "gpu-memory": "100"})
    await submit_share(corner, "fine", HALF)

    await bound(corner, "fine")
    await corner.wait_pods_say(Gang("more", 1), "gpu-fraction must be above 0 and below 1")
    await corner.wait_pods_say(Gang("both", 1), "cannot both be given")


@pytest.mark.usefixtures("binder")
async def test_pods_never_lose_their_reservation_under_churn(
    corner: Corner, components: Components, stand_in: GpuDevicePlugins
) -> None:
    start_gpu_nodes(components, corner, 1, gpus=2).wait_ready()

    async def one(number: int) -> None:
        name = f"p{number}"
        await submit_share(corner, name, {"gpu-fraction": "0.25"})
        (pod,) = await bound(corner, name)
        node, (group,) = pod.spec.node_name, groups(pod.metadata.labels)
        holders = [
            r
            for r in await corner.client.list(SHARERS, label_selector=f"runai-gpu-group={group}")
            if r.is_reservation and r.spec.node_name == node
        ]
        assert [h.metadata.deletion_timestamp for h in holders] == [None]
        told = (await environment(corner, pod))["NVIDIA_VISIBLE_DEVICES"]
        assert told == holders[0].index
        await corner.delete_pod(f"{name}-0")

    for start in range(0, 24, 8):
        await asyncio.gather(*(one(start + offset) for offset in range(8)))
    await wait_reservations(stand_in, 0)


def _whole() -> dict[str, object]:
    limits = {"nvidia.com/gpu": "1"}
    return {"name": "worker", "image": "worker", "resources": {"limits": limits}}
