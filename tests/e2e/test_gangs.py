"""A gang from Pending to Bound, and its conditions while it waits."""

import pytest

from bindery.api.names import API_VERSION, HOSTNAME_LABEL
from bindery.kube.objects.resources import QUEUES
from bindery.kube.objects.topology import TOPOLOGIES
from devcluster.components import Components
from tests.e2e.support import Corner, Gang, Observer, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder")]


async def test_a_gang_is_bound_whole_by_one_bind_request_and_succeeds(
    corner: Corner, components: Components, observer: Observer
) -> None:
    agent = components.start_hollow_nodes(
        2, [f"--node-pool={corner.pool}", f"--name-prefix={corner.namespace}-", "--remove-on-exit"]
    )
    agent.wait_ready()
    gang = Gang("whole", size=4, cpu="30", run_seconds=1)
    await corner.submit(gang)

    await corner.wait_bound(gang)

    async def succeeded() -> bool:
        return all(pod.status.phase == "Succeeded" for pod in await corner.pods(gang))

    await wait_for(succeeded, "the pods succeed")
    condition = await corner.wait_condition(gang, "True", "Finished")
    assert condition.message == "4 pods succeeded"
    assert (await corner.group(gang)).status.state == "Finished"
    await tells_where_it_went(corner, gang)
    assert len(observer.created_requests) == 1
    await corner.wait_nothing_left()


async def tells_where_it_went(corner: Corner, gang: Gang) -> None:
    """Check that the gang, its request and each of its pods have events with their nodes."""
    nodes = {f"{corner.namespace}-{index}" for index in range(2)}

    async def told() -> bool:
        found = [
            event
            for reason in ("Bound", "Scheduled")
            for event in await corner.events(reason)
            if any(node in event.note for node in nodes)
        ]
        about = {(event.reason, event.regarding["kind"]) for event in found}
        pods = {event.regarding["name"] for event in found if event.regarding["kind"] == "Pod"}
        wanted = {("Scheduled", "PodGroup"), ("Bound", "PodGroup"), ("Bound", "BindRequest")}
        return wanted <= about and len(pods) == gang.size

    await wait_for(told, "gang, request and pods have events that name their nodes")


async def test_a_gang_that_lacks_one_node_reports_the_reason_and_is_bound_when_it_is_added(
    corner: Corner, observer: Observer
) -> None:
    await corner.add_nodes("a", "b", cpu="1")
    gang = Gang("three", size=3)
    await corner.submit(gang)

    condition = await corner.wait_condition(gang, "False", "Unschedulable")
    text = "2 of 3 pods fit; for the next one 0/2 nodes are available: 2 insufficient cpu"
    assert condition.message == text
    await corner.wait_pods_say(gang, text)
    assert await corner.bound_count(gang) == 0
    assert observer.created_requests == []

    await corner.add_nodes("c", cpu="1")
    await corner.wait_bound(gang)
    assert len({pod.spec.node_name for pod in await corner.pods(gang)}) == 3
    await corner.wait_condition(gang, "True", "Scheduled")
    assert len(observer.created_requests) == 1


async def test_a_gang_waits_for_its_topology_and_is_bound_in_one_domain(corner: Corner) -> None:
    await corner.add_nodes("a", cpu="1")
    (large,) = await corner.add_nodes("b", cpu="2")
    tree = f"{corner.namespace}-hosts"
    asked = {"topology": {"name": tree, "required": HOSTNAME_LABEL}}
    gang = Gang("close", size=2, group=asked)
    await corner.submit(gang)
    condition = await corner.wait_condition(gang, "False", "TopologyNotUsable")
    assert condition.message == f"Topology {tree} does not exist"

    body = {
        "apiVersion": API_VERSION,
        "kind": "Topology",
        "metadata": {"name": tree},
        "spec": {"levels": [{"nodeLabel": HOSTNAME_LABEL}]},
    }
    await corner.client.create(TOPOLOGIES, body)

    await corner.wait_bound(gang)
    assert {pod.spec.node_name for pod in await corner.pods(gang)} == {large}
    await corner.client.delete(TOPOLOGIES, tree)


async def test_a_gang_waits_for_its_missing_pods(corner: Corner) -> None:
    await corner.add_nodes("a", cpu="8")
    gang = Gang("late", size=2, min_member=3)
    await corner.submit(gang)

    condition = await corner.wait_condition(gang, "False", "NotEnoughPods")
    assert "2 of 3 required pods" in condition.message
    assert await corner.bound_count(gang) == 0

    await corner.create_pod(gang, 2)
    await corner.wait_bound(Gang("late", size=3))


async def test_an_elastic_job_starts_with_its_minimum_and_grows_when_nodes_are_added(
    corner: Corner, observer: Observer
) -> None:
    await corner.add_nodes("a", cpu="3")
    elastic = Gang("elastic", size=5, min_member=2)
    await corner.submit(elastic)

    async def says_who_waits() -> bool:
        # The first condition may be of a moment with fewer pods.
        condition = await corner.wait_condition(elastic, "True", "Scheduled")
        return condition.message.startswith("2 more pods wait: ")

    await wait_for(says_who_waits, "the PodGroup counts the pods that wait")
    assert await corner.bound_count(elastic) == 3

    await corner.add_nodes("b", cpu="2")
    await corner.wait_bound(elastic)
    await corner.wait_nothing_left()


async def test_a_gang_over_the_limit_of_its_queue_waits_until_the_other_gang_ends(
    corner: Corner,
) -> None:
    await corner.add_nodes("a", cpu="8")
    queue = await corner.add_queue("small", {"resources": {"cpu": {"limit": "3"}}})
    first, second = Gang("first", size=2, queue=queue), Gang("second", size=2, queue=queue)
    await corner.submit(first)
    await corner.wait_bound(first)
    await corner.submit(second)

    condition = await corner.wait_condition(second, "False", "OverLimit")
    assert f"queue {queue} holds 2 of its limit of 3 cpu" in condition.message
    await corner.wait_pods_say(second, "of its limit of 3 cpu")
    assert await corner.bound_count(second) == 0

    await corner.delete_gang(first)
    await corner.wait_bound(second)


async def test_a_gang_of_a_queue_that_does_not_exist_waits_for_the_queue(corner: Corner) -> None:
    await corner.add_nodes("a", cpu="8")
    lost = Gang("lost", size=2, queue=f"{corner.namespace}-later")
    await corner.submit(lost)

    condition = await corner.wait_condition(lost, "False", "QueueDoesNotExist")
    assert lost.queue in condition.message
    assert await corner.bound_count(lost) == 0

    await corner.add_queue("later", {})
    await corner.wait_bound(lost)


async def test_a_gang_of_a_closed_queue_waits_until_it_opens(corner: Corner) -> None:
    await corner.add_nodes("a", cpu="8")
    queue = await corner.add_queue("closed", {"state": "Closed"})
    gang = Gang("early", size=2, queue=queue)
    await corner.submit(gang)

    await corner.wait_condition(gang, "False", "QueueClosed")
    assert await corner.bound_count(gang) == 0

    await corner.client.patch(QUEUES, queue, {"spec": {"state": "Open"}})
    await corner.wait_bound(gang)
