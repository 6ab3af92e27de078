"""Two schedulers for the same pods: with an election one acts, without one they do no harm."""

import pytest
from support import Corner, Gang, Observer, metric, scheduler_configuration, wait_for

from bindery.api.configuration import LeaderElection
from bindery.api.names import API_VERSION, NODE_POOL_LABEL
from bindery.controlplane.components import Component, Components
from bindery.kube.bindrequests import BindRequest
from bindery.kube.resources import BIND_REQUESTS

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("binder")]

ELECTION = LeaderElection(lease_seconds=3, renew_deadline_seconds=2, retry_seconds=0.3)


def is_leading(component: Component) -> bool:
    return metric(component, "bindery_leading") == 1


async def test_two_schedulers_without_an_election_bind_every_gang_whole_and_once(
    corner: Corner, observer: Observer, components: Components
) -> None:
    names = ("one", "other")
    for name in names:
        components.start_scheduler(scheduler_configuration(corner.pool), name=f"scheduler-{name}")
    for component in components.started:
        component.wait_ready()
    await corner.add_nodes("a", "b", cpu="40")
    gangs = [Gang(f"gang-{index}", size=4) for index in range(15)]
    await corner.submit(*gangs)

    await corner.wait_bound(*gangs)
    await corner.wait_nothing_left()


async def test_when_the_leading_scheduler_is_killed_the_other_takes_over_with_a_higher_token(
    corner: Corner, observer: Observer, components: Components
) -> None:
    configuration = scheduler_configuration(corner.pool, leader_election=ELECTION)
    pair = [
        components.start_scheduler(configuration, name=f"scheduler-{name}")
        for name in ("one", "other")
    ]

    async def leader() -> Component | None:
        return next((component for component in pair if is_leading(component)), None)

    first = await wait_for(leader, "one leads")
    assert first is not None
    await corner.add_nodes("a", cpu="8")
    before, after = Gang("before", size=2), Gang("after", size=2)
    await corner.submit(before)
    await corner.wait_bound(before)
    first.kill()
    pair.remove(first)
    await corner.submit(after)
    await corner.wait_bound(after)

    assert is_leading(pair[0])
    tokens = {
        request.spec.pod_group.name: request.spec.fencing_token
        for request in observer.requests.values()
        if request.spec.pod_group is not None
    }
    assert tokens["after"] > tokens["before"] > 0

    stale = await a_request_of_an_earlier_leader(corner, tokens["before"])

    async def refused() -> BindRequest | None:
        seen = observer.requests.get(stale.key)
        return seen if seen is not None and seen.status.phase == "Failed" else None

    seen = await wait_for(refused, "the earlier leader's request is refused")
    assert seen is not None
    assert seen.status.reason == "StaleScheduler"
    assert seen.status.bound_pods == []
    assert observer.nodes_of_pods[stale.spec.pods[0].pod_uid] == []


async def a_request_of_an_earlier_leader(corner: Corner, token: int) -> BindRequest:
    """Write what a leader that lost its Lease unawares might write: for a pod that waits."""
    gang = Gang("stale", size=1, min_member=2)
    await corner.submit(gang)
    await corner.wait_condition(gang, "False", "NotEnoughPods")
    [pod] = await corner.pods(gang)
    binding = {
        "podName": pod.metadata.name,
        "podUID": pod.metadata.uid,
        "selectedNode": f"{corner.namespace}-a",
    }
    body = {
        "apiVersion": API_VERSION,
        "kind": "BindRequest",
        "metadata": {"name": "stale", "labels": {NODE_POOL_LABEL: corner.pool}},
        "spec": {"pods": [binding], "statement": {"id": "stale"}, "fencingToken": token},
    }
    created = await corner.client.create(BIND_REQUESTS, body, corner.namespace)
    [statement] = created.each()
    return statement
