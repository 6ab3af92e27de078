"""Failures around reservation pods; each test runs the only binder."""

from pathlib import Path

import pytest

from bindery.api.gpushare import CONFIG_MAP_ANNOTATION, RESERVATION_NAMESPACE, groups
from bindery.binder.plugins.gpusharing.objects import SHARERS
from bindery.kube.errors import NotFoundError
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.resources import CONFIG_MAPS
from devcluster.components import Components
from devcluster.install import Installation
from fakes.reservations import GpuDevicePlugins
from tests.e2e.gpunodes import (
    HALF,
    bound,
    delete_reservation,
    environment,
    sharing,
    start_gpu_nodes,
    submit_share,
    submit_shares,
    wait_event,
    wait_healed,
    wait_reservations,
)
from tests.e2e.support import Corner, Gang, Observer, binder_configuration, wait_for
from tests.e2e.traps import ready, trapped
from tests.kube.faultproxy import Stream

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler")]


async def test_a_reservation_without_a_device_times_out_and_is_created_again(
    corner: Corner, components: Components, stand_in: GpuDevicePlugins
) -> None:
    components.start_binder(binder_configuration(sharing(deadline_s=1.0))).wait_ready()
    start_gpu_nodes(components, corner, 1, gpus=1).wait_ready()
    stand_in.is_silent = True
    await submit_share(corner, "a", HALF)

    async def failed() -> bool:
        return any(r.status.failed_attempts > 0 for r in await corner.requests())

    await wait_for(failed, "an attempt fails")
    request = await corner.wait_request()
    assert "has not reported its GPU within 1 s" in request.status.message
    stand_in.speak()
    await bound(corner, "a")


async def test_a_starting_binder_removes_only_reservations_without_users(
    corner: Corner, components: Components, stand_in: GpuDevicePlugins
) -> None:
    binder = components.start_binder(binder_configuration(sharing())).wait_ready()
    start_gpu_nodes(components, corner, 1, gpus=2).wait_ready()
    await submit_share(corner, "stays", {"gpu-fraction": "0.9"})
    await submit_share(corner, "goes", {"gpu-fraction": "0.8"})
    stays, _ = await bound(corner, "stays", "goes")
    binder.kill()
    await corner.delete_pod("goes-0")
    assert len(stand_in.reservations()) == 2

    binder.restart()

    await wait_reservations(stand_in, 1)
    assert stand_in.reservations()[0].groups == groups(stays.metadata.labels)


async def test_a_binder_killed_during_a_reservation_completes_it_after_a_restart(
    corner: Corner, components: Components, stand_in: GpuDevicePlugins
) -> None:
    binder = components.start_binder(binder_configuration(sharing())).wait_ready()
    start_gpu_nodes(components, corner, 1, gpus=1).wait_ready()
    stand_in.is_silent = True
    await submit_share(corner, "a", HALF)
    await wait_reservations(stand_in, 1)
    binder.kill()
    stand_in.speak()
    binder.restart()

    (a,) = await bound(corner, "a")
    assert (await environment(corner, a))["NVIDIA_VISIBLE_DEVICES"] == "0"
    assert stand_in.ever_given == 1


async def test_a_foreign_config_map_is_not_changed(
    corner: Corner,
    components: Components,
    stand_in: GpuDevicePlugins,
    observer: Observer,
) -> None:
    components.start_binder(binder_configuration(sharing())).wait_ready()
    start_gpu_nodes(components, corner, 1, gpus=1).wait_ready()
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "mine-0"},
        "data": {"key": "value"},
    }
    await corner.client.create(CONFIG_MAPS, body, corner.namespace)
    await submit_share(corner, "a", {**HALF, CONFIG_MAP_ANNOTATION: "mine"})

    async def refused() -> bool:
        messages = [request.status.message for request in observer.statements.values()]
        return any("does not belong to the pod" in message for message in messages)

    await wait_for(refused, "the request says why")
    found = await corner.client.get(CONFIG_MAPS, "mine-0", corner.namespace)
    assert found.data == {"key": "value"}
    await wait_reservations(stand_in, 0)
    with pytest.raises(NotFoundError):
        await corner.client.get(CONFIG_MAPS, "mine-0-evar", corner.namespace)


async def test_a_rolled_back_gang_releases_its_reservation_before_it_reports_the_failure(
    corner: Corner, components: Components, stand_in: GpuDevicePlugins, observer: Observer
) -> None:
    components.start_binder(binder_configuration(sharing())).wait_ready()
    start_gpu_nodes(components, corner, 1, gpus=1).wait_ready()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine-0"}}
    await corner.client.create(CONFIG_MAPS, body, corner.namespace)
    taken = {**HALF, CONFIG_MAP_ANNOTATION: "mine"}
    await submit_shares(corner, "gang", HALF, taken)

    async def failed() -> CommittedStatement | None:
        statements = observer.statements.values()
        return next((each for each in statements if each.status.phase == "Failed"), None)

    statement = await wait_for(failed, "the gang is rolled back")
    assert statement is not None
    reserved = {group for pod in statement.spec.pods for group in pod.selected_gpu_groups}
    assert len(reserved) == 1
    # The gang may be planned again by now, with a group of its own.
    found = await corner.client.list(SHARERS, namespace=RESERVATION_NAMESPACE)
    kept = [pod for pod in found if reserved & set(pod.groups)]
    assert [pod for pod in kept if pod.metadata.deletion_timestamp is None] == []
    assert stand_in.ever_given >= 1


async def test_a_deleted_reservation_is_recreated_and_pods_report_a_changed_device(
    corner: Corner, components: Components, stand_in: GpuDevicePlugins
) -> None:
    components.start_binder(binder_configuration(sharing())).wait_ready()
    start_gpu_nodes(components, corner, 1, gpus=3).wait_ready()
    await submit_share(corner, "a", {"gpu-fraction": "0.9"})
    await bound(corner, "a")
    await submit_share(corner, "b", {"gpu-fraction": "0.9"})
    (b,) = await bound(corner, "b")
    device = (await environment(corner, b))["NVIDIA_VISIBLE_DEVICES"]

    await delete_reservation(corner, stand_in, b)
    healed = await wait_healed(stand_in, b)
    assert healed.index == device == "1"

    stand_in.taken_elsewhere.add("1")
    await delete_reservation(corner, stand_in, b)
    healed = await wait_healed(stand_in, b)
    assert healed.index == "2"
    assert "This pod still uses GPU 1" in await wait_event(corner, b, "GpuReservationMoved")


async def test_a_reservation_is_removed_if_the_end_of_its_only_user_was_not_watched(
    corner: Corner,
    components: Components,
    stand_in: GpuDevicePlugins,
    installation: Installation,
    tmp_path: Path,
) -> None:
    """A watch that is cut shows nothing of a pod that came and went in between."""
    start_gpu_nodes(components, corner, 1, gpus=1).wait_ready()
    async with trapped(installation, "binder", tmp_path) as (proxy, through_proxy):
        binder = through_proxy.start_binder(binder_configuration(sharing()))
        await ready(binder)

        async def of_sharers() -> list[Stream]:
            return [each for each in proxy.streams if "labelSelector" in each.path_qs]

        streams = await wait_for(of_sharers, "the watch of pods with shares is up")
        stand_in.is_silent = True
        await submit_share(corner, "a", HALF)
        await wait_reservations(stand_in, 1)  # the pod has its label and no node yet
        for stream in streams:
            stream.silent = True
        stand_in.speak()
        await bound(corner, "a")
        await corner.delete_pod("a-0")
        proxy.cut_streams()

        await wait_reservations(stand_in, 0)


def whole_gpus(name: str, count: int) -> Gang:
    container = {
        "name": "worker",
        "image": "worker",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    return Gang(name, count, pod={"containers": [container]})


async def test_the_gpu_of_a_reservation_is_taken_until_its_pod_has_terminated(
    corner: Corner, components: Components, stand_in: GpuDevicePlugins
) -> None:
    components.start_binder(binder_configuration(sharing())).wait_ready()
    node = start_gpu_nodes(components, corner, 1, gpus=4).wait_ready()
    await corner.submit(whole_gpus("first", 1))
    await corner.wait_bound(whole_gpus("first", 1))
    stand_in.taken_elsewhere.add("0")
    await submit_share(corner, "share", HALF)
    await bound(corner, "share")
    node.process.pause()

    await corner.delete_pod("share-0")
    three = whole_gpus("three", 3)
    await corner.submit(three)
    await corner.wait_condition(three, "False", "WaitsForRelease")

    assert len(stand_in.reservations()) == 1, "the frozen node has not ended it"
    assert await corner.bound_count(three) == 0
    node.process.resume()
    await corner.wait_bound(three)
    assert stand_in.reservations() == []
