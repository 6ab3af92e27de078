"""Invalid input is refused or explained at its object or file; other work continues."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bindery.kube.errors import ApiError
from bindery.kube.objects.resources import PRIORITY_CLASSES
from devcluster.components import Component, Components
from devcluster.plane import ControlPlane
from tests.e2e.support import Corner, Gang, metric, scheduler_configuration, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]


@pytest.fixture(autouse=True)
async def another_gang_still_binds(corner: Corner) -> AsyncIterator[None]:
    """After each test: whatever was wrong, others go on."""
    yield
    await corner.add_nodes("others", cpu="2")
    gang = Gang("others", size=2)
    await corner.submit(gang)
    await corner.wait_bound(gang)


async def test_a_negative_minimum_is_refused_by_the_api_server_with_the_fields_name(
    corner: Corner,
) -> None:
    with pytest.raises(ApiError, match=r"spec\.minMember"):
        await corner.create_group(Gang("negative", size=0, min_member=-1))


async def test_an_unparsable_limit_is_refused_by_the_api_server(corner: Corner) -> None:
    with pytest.raises(ApiError, match=r"spec\.resources\.gpu\.limit"):
        await corner.add_queue("odd", {"resources": {"gpu": {"limit": "3 apples"}}})


async def test_a_weight_below_zero_is_refused_by_the_api_server(corner: Corner) -> None:
    with pytest.raises(ApiError, match=r"spec\.resources\.gpu\.overQuotaWeight"):
        await corner.add_queue("light", {"resources": {"gpu": {"overQuotaWeight": -1}}})


async def test_an_unparsable_allocatable_is_refused_by_the_api_server(
    corner: Corner,
) -> None:
    with pytest.raises(ApiError, match="quantities"):
        await corner.add_nodes("odd", cpu="3 apples")


async def test_a_gang_of_an_unknown_priority_class_is_invalid_until_the_class_exists(
    corner: Corner,
) -> None:
    await corner.add_nodes("a", cpu="2")
    name = f"{corner.namespace}-class"
    gang = Gang("urgent", size=2, group={"priorityClassName": name})
    await corner.submit(gang)
    condition = await corner.wait_condition(gang, "False", "PriorityClassDoesNotExist")
    assert name in condition.message
    assert await corner.bound_count(gang) == 0

    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 7,
    }
    await corner.client.create(PRIORITY_CLASSES, body)
    await corner.wait_bound(gang)
    await corner.client.delete(PRIORITY_CLASSES, name)


async def test_pods_report_that_their_host_port_is_free_on_no_node(corner: Corner) -> None:
    await corner.add_nodes("a", cpu="2")
    container = {"name": "worker", "image": "worker", "ports": [port(8080)]}
    gang = Gang("ports", size=2, pod={"containers": [container]})
    await corner.submit(gang)

    condition = await corner.wait_condition(gang, "False", "Unschedulable")
    assert "1 have its host ports in use" in condition.message
    await corner.wait_pods_say(gang, "host ports")
    assert await corner.bound_count(gang) == 0


def port(number: int) -> dict[str, Any]:
    return {"containerPort": number, "hostPort": number}


async def test_a_gang_reports_that_the_parent_of_its_queue_does_not_exist(corner: Corner) -> None:
    queue = await corner.add_queue("orphan", {"parent": f"{corner.namespace}-nobody"})
    gang = Gang("gang", size=1, queue=queue)
    await corner.submit(gang)
    condition = await corner.wait_condition(gang, "False", "QueueDoesNotExist")
    assert condition.message == f"queue {corner.namespace}-nobody does not exist"


async def test_a_scheduler_keeps_its_configuration_if_the_new_one_is_invalid(
    corner: Corner, components: Components, control_plane: ControlPlane
) -> None:
    own = Corner(corner.client, corner.namespace, f"{corner.pool}-changing")
    scheduler = components.start_scheduler(scheduler_configuration(own.pool), name="changing")
    scheduler.wait_ready()
    file = control_plane.state_dir / "configuration" / "changing.yaml"
    good = file.read_text()
    file.write_text("cycleSeconds: [")
    await wait_for_errors(scheduler, 1)
    file.write_text(good.replace("{", '{"unknown": 1,', 1))
    await wait_for_errors(scheduler, 2)

    await own.add_nodes("own", cpu="2")
    gang = Gang("own", size=2)
    await own.submit(gang)
    await own.wait_bound(gang)
    await own.clean()


async def wait_for_errors(scheduler: Component, count: int) -> None:
    async def counted() -> bool:
        return metric(scheduler, "bindery_configuration_errors_total") == count

    await wait_for(counted, f"{count} configuration errors")


async def test_pods_of_a_podgroup_that_does_not_exist_have_an_event(corner: Corner) -> None:
    gang = Gang("nosuch", size=2)
    for index in range(2):
        await corner.create_pod(gang, index)

    async def told() -> bool:
        found = await corner.events("PodGroupDoesNotExist")
        return [each.regarding["kind"] for each in found] == ["Pod"]

    await wait_for(told, "one of the equal pods has an event")
