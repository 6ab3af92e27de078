"""The PodGroups of Kubernetes 1.36, on an API server with the feature gates on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from bindery.api.configuration import GrouperConfiguration, LeaderElection
from bindery.api.names import QUEUE_LABEL
from bindery.kube.errors import AlreadyExistsError
from bindery.kube.objects.resources import PRIORITY_CLASSES
from devcluster.components import Component
from devcluster.install import Installation
from devcluster.settings import Features
from tests.e2e.dracorner import Driver, gpus
from tests.e2e.support import Corner, wait_for
from tests.e2e.traps import Trap, kill, ready, trapped
from tests.e2e.upstream.upstreamcorner import GATES, Upstream, basic, gang

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("scheduler", "binder", "grouper")]

ALONE = GrouperConfiguration(leader_election=LeaderElection(enabled=False))
SCHEDULED = "PodGroupScheduled"


VERSION = "v1alpha2"
FEATURES = Features(GATES, ("scheduling.k8s.io/v1alpha2",))
IS_NEXT = False


@pytest.fixture
async def driver(corner: Corner) -> AsyncIterator[Driver]:
    driver = Driver(corner)
    await driver.make_class()
    yield driver
    await driver.clean()


async def test_a_gang_of_three_waits_for_room_for_three(corner: Corner, upstream: Upstream) -> None:
    await corner.add_nodes("a", cpu="2")
    await upstream.create("train", gang(3))
    await upstream.submit("train", "w0", "w1", "w2")

    said = await upstream.wait_said("train", SCHEDULED, ["False", "Unschedulable"])
    assert "2 of 3 pods fit" in said["message"]
    assert await upstream.bound("train") == []

    await corner.add_nodes("b", cpu="2")
    await upstream.wait_bound("train", 3)
    await upstream.wait_said("train", SCHEDULED, ["True", "Scheduled"])


async def test_pods_of_a_basic_group_are_bound_individually(
    corner: Corner, upstream: Upstream
) -> None:
    await corner.add_nodes("a", cpu="2")
    await upstream.create("many", basic())
    await upstream.submit("many", "w0", "w1", "w2")

    await upstream.wait_bound("many", 2)
    await upstream.wait_said("many", SCHEDULED, ["True", "Scheduled"])


async def test_pods_wait_for_a_group_that_is_created_later(
    corner: Corner, upstream: Upstream
) -> None:
    await corner.add_nodes("a", cpu="4")
    await upstream.submit("late", "w0", "w1")

    async def waits() -> bool:
        said = [pod.status.conditions or [] for pod in await upstream.pods("late")]
        return all(any("PodGroup" in c.message for c in each) for each in said)

    await wait_for(waits, "the pods say what they wait for")
    assert await upstream.bound("late") == []
    (event,) = await corner.events("PodGroupMissing")
    assert "PodGroup late of scheduling.k8s.io" in event.note

    await upstream.create("late", gang(2))
    await upstream.wait_bound("late", 2)


async def test_a_condition_is_written_although_the_grouper_was_killed_at_the_write(
    corner: Corner,
    upstream: Upstream,
    grouper: Component,
    installation: Installation,
    tmp_path: Path,
) -> None:
    await corner.add_nodes("a", cpu="4")
    grouper.kill()
    try:
        async with trapped(installation, "grouper", tmp_path) as (proxy, components):
            killed = await ready(components.start_grouper(ALONE))
            for after in (False, True):
                name = "after" if after else "before"
                trap = Trap("PATCH", "/status", kill(killed), after=after)
                proxy.set(trap)
                await upstream.create(name, gang(2))
                await upstream.submit(name, f"{name}-0", f"{name}-1")
                await trap.wait()
                await asyncio.to_thread(killed.restart)
                await upstream.wait_bound(name, 2)
                await upstream.wait_said(name, SCHEDULED, ["True", "Scheduled"])
            assert len(await upstream.ours()) == 2
            await upstream.delete("before")

            async def is_gone() -> bool:
                return len(await upstream.ours()) == 1

            await wait_for(is_gone, "our PodGroup goes with that of Kubernetes")
    finally:
        await asyncio.to_thread(grouper.restart)


async def test_a_group_that_is_created_again_keeps_its_pods(
    corner: Corner, upstream: Upstream
) -> None:
    await corner.add_nodes("a", cpu="3")
    await upstream.create("ray", gang(2))
    await upstream.submit("ray", "w0", "w1")
    await upstream.wait_bound("ray", 2)
    (first,) = await upstream.ours()
    before = {pod.metadata.uid for pod in await upstream.pods("ray")}

    await upstream.delete("ray")
    await upstream.create("ray", gang(3))
    await upstream.submit("ray", "w2")

    await upstream.wait_bound("ray", 3)
    await upstream.wait_said("ray", SCHEDULED, ["True", "Scheduled"])

    async def only_the_new() -> bool:
        return [each.metadata.uid == first.metadata.uid for each in await upstream.ours()] == [
            False
        ]

    await wait_for(only_the_new, "the PodGroup of the old group is gone")
    assert before <= {pod.metadata.uid for pod in await upstream.pods("ray")}


async def test_pods_of_two_schedulers_are_an_error(corner: Corner, upstream: Upstream) -> None:
    await corner.add_nodes("a", cpu="4")
    await upstream.submit("mixed", "other", schedulerName="somebody-else")
    await upstream.submit("mixed", "w0", "w1")
    await upstream.create("mixed", gang(2))

    said = await upstream.wait_said("mixed", SCHEDULED, ["False", "SchedulerError"])
    assert "pod other names somebody-else" in said["message"]
    assert await upstream.bound("mixed") == []

    await corner.delete_pod("other")
    await upstream.wait_bound("mixed", 2)


async def test_the_group_of_another_scheduler_is_not_changed(
    corner: Corner, upstream: Upstream
) -> None:
    await corner.add_nodes("a", cpu="4")
    await upstream.submit("theirs", "other", schedulerName="somebody-else")
    theirs = await upstream.create("theirs", gang(1))
    await upstream.create("ours", gang(1))
    await upstream.submit("ours", "w0")

    await upstream.wait_bound("ours", 1)

    assert [each.metadata.name.startswith("podgroup-ours-") for each in await upstream.ours()] == [
        True
    ]
    found = await upstream.get("theirs")
    assert not (found.status or {}).get("conditions")
    assert found.spec == theirs.spec


async def test_the_label_of_the_group_sets_the_queue(corner: Corner, upstream: Upstream) -> None:
    queue = await corner.add_queue("small", {"resources": {"cpu": {"limit": 1}}})
    await corner.add_nodes("a", cpu="4")
    kind, namespace = upstream.kind(), corner.namespace
    body = {
        "apiVersion": kind.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": namespace, "labels": {QUEUE_LABEL: queue}},
        "spec": gang(2),
    }
    await corner.client.create(kind, body, namespace)
    await upstream.submit("train", "w0", "w1")

    said = await upstream.wait_said("train", SCHEDULED, ["False", "Unschedulable"])

    assert queue in said["message"]
    assert [each.spec.queue for each in await upstream.ours()] == [queue]


async def test_a_job_with_a_gang_from_kubernetes_is_bound_as_a_gang(
    corner: Corner, upstream: Upstream
) -> None:
    await corner.add_nodes("a", cpu="2")
    group = await upstream.create_job("indexed")
    await upstream.wait_said(group, SCHEDULED, ["False", "Unschedulable"])
    assert await upstream.bound(group) == []

    await corner.add_nodes("b", cpu="2")
    await upstream.wait_bound(group, 3)


@pytest.mark.long("a minute")
async def test_three_hundred_pods_share_a_claim_of_their_group(
    corner: Corner, upstream: Upstream, driver: Driver
) -> None:
    count = 300  # more than one claim has room for single consumers
    await corner.add_nodes("a", "b", "c", cpu="8")
    await driver.publish_to_all("fabric", gpus(1))
    await driver.make_template("channel")
    claims = [{"name": "channel", "resourceClaimTemplateName": "channel"}]
    group = await upstream.create("wide", gang(count, resourceClaims=claims))
    names = [f"w{index}" for index in range(count)]

    await upstream.submit("wide", *names, cpu="10m", resourceClaims=claims)
    await upstream.wait_bound("wide", count)

    (claim,) = await driver.claims()
    assert claim.status.allocation is not None
    (consumer,) = claim.status.reserved_for
    assert (consumer.resource, consumer.name) == ("podgroups", "wide")
    assert (consumer.api_group, consumer.uid) == ("scheduling.k8s.io", group.metadata.uid)


async def test_a_claim_that_the_group_does_not_share_belongs_to_its_pod(
    corner: Corner, upstream: Upstream, driver: Driver
) -> None:
    (node,) = await corner.add_nodes("a", cpu="8")
    await driver.publish(node, gpus(2))
    await driver.make_template("own")
    claims = [{"name": "own", "resourceClaimTemplateName": "own"}]
    await upstream.create("each", gang(2))

    await upstream.submit("each", "w0", "w1", resourceClaims=claims)
    await upstream.wait_bound("each", 2)

    consumers = [claim.status.reserved_for for claim in await driver.claims()]
    assert sorted(user.name for users in consumers for user in users) == ["w0", "w1"]


@pytest.mark.parametrize(("mode", "left"), [("Pod", 1), ("PodGroup", 0)])
async def test_the_disruption_mode_decides_whether_a_group_is_evicted_whole(
    corner: Corner, upstream: Upstream, mode: str, left: int
) -> None:
    for name, value in (("upstream-low", 10), ("upstream-high", 90)):
        body = {"metadata": {"name": name}, "value": value}
        with suppress(AlreadyExistsError):
            await corner.client.create(PRIORITY_CLASSES, body)
    await corner.add_nodes("a", cpu="2")
    low = {"priorityClassName": "upstream-low"}
    await upstream.create("victim", gang(1, disruptionMode=mode, **low))
    await upstream.submit("victim", "w0", "w1", **low)
    await upstream.wait_bound("victim", 2)

    high = {"priorityClassName": "upstream-high"}
    await upstream.create("urgent", gang(1, **high))
    await upstream.submit("urgent", "u0", **high)
    await upstream.wait_bound("urgent", 1)

    assert len(await upstream.pods("victim")) == left
    if not left:
        answer = ["True", "PreemptionByScheduler"]
        await upstream.wait_said("victim", "DisruptionTarget", answer)
