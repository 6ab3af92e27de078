"""The cluster changes between plan and bind, or the plan cannot be bound."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from bindery.api.configuration import BindRequestConfiguration, PluginConfiguration
from bindery.kube.objects.bindrequests import CommittedStatement
from devcluster.components import Components
from devcluster.install import Installation
from tests.e2e.dracorner import Driver, gpus, templated
from tests.e2e.sabotage import Sabotage
from tests.e2e.support import (
    Corner,
    Gang,
    Observer,
    binder_configuration,
    scheduler_configuration,
    wait_for,
)
from tests.e2e.traps import Trap, ready, trapped

pytestmark = pytest.mark.e2e


@pytest.mark.usefixtures("scheduler")
async def test_a_gang_with_a_planned_node_deleted_is_bound_whole_elsewhere(
    corner: Corner, observer: Observer, components: Components
) -> None:
    await corner.add_nodes("a", "b", cpu="2")
    gang = Gang("gang", size=4)
    await corner.submit(gang)
    request = await corner.wait_request()
    await corner.remove_node(request.spec.pods[-1].selected_node)
    components.start_binder(binder_configuration()).wait_ready()

    await corner.wait_nothing_left()
    await corner.wait_condition(gang, "False", "Unschedulable")
    assert await corner.bound_count(gang) == 0
    await corner.add_nodes("c", cpu="2")
    await corner.wait_bound(gang)
    await corner.wait_nothing_left()


@pytest.mark.usefixtures("scheduler")
async def test_a_gang_with_planned_devices_withdrawn_gets_none_and_waits(
    corner: Corner, observer: Observer, components: Components
) -> None:
    driver = Driver(corner)
    await driver.make_class()
    (node,) = await corner.add_nodes("a", cpu="8")
    await driver.publish(node, gpus(2))
    await driver.make_template("one")
    gang = Gang("pair", size=2, pod=templated("one"))
    await corner.submit(gang)
    request = await corner.wait_request()
    await driver.withdraw(node)
    plugin = PluginConfiguration(name="dra")
    components.start_binder(binder_configuration(plugin)).wait_ready()

    async def refused() -> bool:
        status = observer.statements[request.key].status
        return status.phase == "Failed" and "is no longer offered" in status.message

    await wait_for(refused, "the request fails and says why")
    assert await corner.bound_count(gang) == 0
    assert [claim.status.allocation for claim in await driver.claims()] == [None, None]
    await driver.clean()


@pytest.mark.usefixtures("scheduler")
async def test_extra_pods_are_not_bound_if_planned_nodes_of_their_gang_are_deleted(
    corner: Corner, observer: Observer, components: Components
) -> None:
    await corner.add_nodes("a", cpu="2")
    gang = Gang("elastic", size=6, min_member=3)
    await corner.submit(gang)
    await corner.wait_condition(gang, "False", "Unschedulable")
    await corner.add_nodes("b", "c", cpu="2")

    async def extras() -> list[CommittedStatement]:
        return [r for r in await corner.requests() if r.spec.after is not None]

    found = await wait_for(extras, "extra pods are committed")
    (first,) = [r for r in await corner.requests() if r.spec.after is None]
    assert {extra.spec.after for extra in found} == {first.spec.id}
    for name in {pod.selected_node for pod in first.spec.pods}:
        await corner.remove_node(name)
    components.start_binder(binder_configuration()).wait_ready()

    await corner.wait_nothing_left()
    await corner.wait_condition(gang, "False", "Unschedulable")
    assert await corner.bound_count(gang) == 0
    await corner.add_nodes("d", "e", "f", cpu="2")
    await corner.wait_bound(gang)
    await corner.wait_nothing_left()


@pytest.mark.usefixtures("scheduler")
async def test_a_pod_replaced_between_plan_and_bind_is_bound_with_its_gang(
    corner: Corner, observer: Observer, components: Components
) -> None:
    await corner.add_nodes("a", "b", cpu="2")
    gang = Gang("gang", size=4)
    await corner.submit(gang)
    request = await corner.wait_request()
    replaced = request.spec.pods[0]
    index = int(replaced.pod_name.rpartition("-")[2])
    await corner.delete_pod(replaced.pod_name)
    successor = await corner.create_pod(gang, index)
    components.start_binder(binder_configuration()).wait_ready()

    await corner.wait_bound(gang)
    await corner.wait_nothing_left()
    assert observer.statements[request.key].status.bound_pods == []
    assert observer.nodes_of_pods[replaced.pod_uid] == []
    assert observer.nodes_of_pods[successor.metadata.uid] != []


@pytest.mark.usefixtures("scheduler")
async def test_the_successor_of_a_pod_deleted_during_binding_completes_the_gang(
    corner: Corner, observer: Observer, installation: Installation, tmp_path: Path
) -> None:
    gang = Gang("gang", size=4)
    async with trapped(installation, "binder", tmp_path) as (proxy, components):
        await ready(components.start_binder(binder_configuration()))

        async def delete() -> None:
            await corner.delete_pod(f"{gang.name}-3")

        trap = proxy.set(Trap("POST", f"{gang.name}-3/binding", delete))
        await corner.add_nodes("a", "b", cpu="2")
        await corner.submit(gang)
        await trap.wait()

        await corner.wait_bound(replace(gang, size=3))
        await corner.wait_nothing_left()
        await corner.create_pod(gang, 3)
        await corner.wait_bound(gang)
        await corner.wait_nothing_left()


async def test_a_bind_request_without_a_binder_times_out_and_the_gang_is_planned_again(
    corner: Corner, observer: Observer, components: Components
) -> None:
    impatient = replace(corner, pool=f"{corner.pool}-impatient")
    bind_request = BindRequestConfiguration(timeout_seconds=1)
    components.start_scheduler(
        scheduler_configuration(impatient.pool, bind_request), name="impatient"
    ).wait_ready()
    await impatient.add_nodes("a", cpu="2")
    gang = Gang("gang", size=2)
    await impatient.submit(gang)

    async def planned_anew() -> bool:
        return len(observer.created_requests) >= 3

    await wait_for(planned_anew, "it was planned three times")
    assert await impatient.bound_count(gang) == 0
    components.start_binder(binder_configuration()).wait_ready()
    await impatient.wait_bound(gang)
    await impatient.wait_nothing_left()
    await impatient.clean()


@pytest.mark.usefixtures("scheduler", "plugin_path")
async def test_a_gang_refused_by_a_node_is_planned_once_more_on_other_nodes(
    corner: Corner, observer: Observer, components: Components, tmp_path: Path
) -> None:
    refusing, *others = await corner.add_nodes("a", "b", "c", cpu="2")
    plugin = Sabotage(tmp_path / "journal", refuse_node=refusing)
    components.start_binder(binder_configuration(plugin.configuration())).wait_ready()
    gang = Gang("gang", size=4)
    await corner.submit(gang)

    await corner.wait_bound(gang)
    await corner.wait_nothing_left()
    assert {pod.spec.node_name for pod in await corner.pods(gang)} == set(others)
    assert refusing in {node for _, node in plugin.calls("pre_bind")}
    assert len(observer.created_requests) == 2
    assert {pod for pod, _ in plugin.calls("rollback")} == {f"gang-{index}" for index in range(4)}


@pytest.mark.usefixtures("scheduler", "plugin_path")
async def test_a_gang_refused_by_its_only_node_waits_without_repeated_attempts(
    corner: Corner, observer: Observer, components: Components, tmp_path: Path
) -> None:
    [refusing] = await corner.add_nodes("a", cpu="2")
    plugin = Sabotage(tmp_path / "journal", refuse_node=refusing)
    components.start_binder(binder_configuration(plugin.configuration())).wait_ready()
    gang = Gang("gang", size=2)
    await corner.submit(gang)

    await corner.wait_condition(gang, "False", "Unschedulable")
    await corner.wait_pods_say(gang, "1 failed to bind it a short while ago")
    await asyncio.sleep(3)  # that nothing happens can only be seen by looking for a while
    assert len(observer.created_requests) == 1
    assert await corner.bound_count(gang) == 0
