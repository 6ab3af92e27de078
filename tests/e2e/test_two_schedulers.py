"""Two schedulers for the same pods: one acts with an election, and both do no harm without."""

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from bindery.api.configuration import BindRequestConfiguration
from bindery.api.names import API_VERSION, NODE_POOL_LABEL
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.resources import BIND_REQUESTS
from bindery.scheduler.commit.writer import CONCURRENT_CREATIONS
from devcluster.components import Component, Components
from devcluster.install import Installation
from tests.e2e.gates import gated
from tests.e2e.support import (
    SHORT_LEASES,
    Corner,
    Gang,
    Observer,
    metric,
    scheduler_configuration,
    wait_for,
)
from tests.e2e.traps import ready
from tests.sizes import sample

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("binder")]


def is_leading(component: Component) -> bool:
    return metric(component, "bindery_leading") == 1


@pytest.mark.long("histories show it")
async def test_two_schedulers_without_an_election_bind_every_gang_whole_and_once(
    corner: Corner, observer: Observer, components: Components
) -> None:
    names = ("one", "other")
    for name, most in zip(names, (50, 3), strict=True):
        configuration = scheduler_configuration(
            corner.pool, BindRequestConfiguration(max_statements=most)
        )
        components.start_scheduler(configuration, name=f"scheduler-{name}")
    for component in components.started:
        component.wait_ready()
    await corner.add_nodes("a", "b", cpu="80")
    gangs = [Gang(f"gang-{index}", size=4) for index in range(30)]
    await corner.submit(*gangs)

    await corner.wait_bound(*gangs)
    await corner.wait_nothing_left()


async def test_a_standby_takes_over_with_a_higher_token_when_the_leader_is_killed(
    corner: Corner, observer: Observer, components: Components
) -> None:
    configuration = scheduler_configuration(corner.pool, leader_election=SHORT_LEASES)
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
        request.spec.pod_group.name: request.fencing_token
        for request in observer.statements.values()
        if request.spec.pod_group is not None
    }
    assert tokens["after"] > tokens["before"] > 0

    stale = await a_request_of_an_earlier_leader(corner, tokens["before"])

    async def refused() -> CommittedStatement | None:
        seen = observer.statements.get(stale.key)
        return seen if seen is not None and seen.status.phase == "Failed" else None

    seen = await wait_for(refused, "the earlier leader's request is refused")
    assert seen is not None
    assert seen.status.reason == "StaleScheduler"
    assert seen.status.bound_pods == []
    assert observer.nodes_of_pods[stale.spec.pods[0].pod_uid] == []


@pytest.mark.parametrize("comes_first", sample(1, ["late", "own"]))
async def test_gangs_committed_by_two_leaders_in_different_requests_are_bound_once(
    corner: Corner, observer: Observer, installation: Installation, tmp_path: Path, comes_first: str
) -> None:
    """Requests of a leader without a Lease reach the API server when another one leads."""
    configuration = scheduler_configuration(corner.pool, leader_election=SHORT_LEASES)
    async with (
        gated(installation, tmp_path / "early") as (early, first),
        gated(installation, tmp_path / "late") as (late, second),
    ):
        leader = await ready(first.start_scheduler(configuration, name="scheduler-early"))
        await wait_for(partial(leads, leader), "one leads")
        successor = await ready(second.start_scheduler(configuration, name="scheduler-late"))
        await corner.add_nodes("a", cpu="80")
        for gate in (early, late):
            gate.close()
        gangs = [Gang(f"gang-{index:02}", size=2) for index in range(22)]
        await corner.submit(*gangs)

        async def committed() -> bool:
            return metric(leader, "bindery_statements_total") >= len(gangs)

        await wait_for(committed, "all gangs are committed")
        early.let_pass(CONCURRENT_CREATIONS - 1)
        shared = await early.wait_for_shared()
        assert len(shared) == len(gangs) - CONCURRENT_CREATIONS
        # Its name is that of its first gang, which the other leader is not to commit again.
        ended = next(gang for gang in gangs if gang.name == shared[0]["podGroup"]["name"])
        await corner.delete_gang(ended)
        early.keeps_lease_writes = True
        await wait_for(partial(leads, successor), "the other leads")
        left = len(gangs) - CONCURRENT_CREATIONS
        await late.wait_for_creations(left)

        order = (early, late) if comes_first == "late" else (late, early)
        for gate in order:
            gate.let_pass()
            await asyncio.sleep(0.2)
        await corner.wait_bound(*(gang for gang in gangs if gang is not ended))
        await corner.wait_nothing_left()

    by_gang = Counter(
        s.spec.pod_group.name for s in observer.statements.values() if s.spec.pod_group
    )
    assert [by_gang[s["podGroup"]["name"]] for s in shared] == [1, *[2] * (left - 1)]
    stale = [
        s for s in observer.statements.values() if s.key.statement in {e["id"] for e in shared}
    ]
    refused = [s for s in stale if s.status.reason == "StaleScheduler"]
    assert all(s.status.bound_pods == [] for s in refused)
    # What is late may find all pods, or one of them, on the nodes that it names.
    found_bound = [s for s in stale if s.status.reason in ("Bound", "BoundElsewhere")]
    assert len(refused) + len(found_bound) == len(stale), Counter(s.status.reason for s in stale)
    assert refused
    assert not found_bound or comes_first == "own"


async def leads(component: Component) -> bool:
    return is_leading(component)


async def a_request_of_an_earlier_leader(corner: Corner, token: int) -> CommittedStatement:
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
        "spec": {"statements": [{"id": "stale", "pods": [binding]}], "fencingToken": token},
    }
    created = await corner.client.create(BIND_REQUESTS, body, corner.namespace)
    [statement] = created.each()
    return statement
