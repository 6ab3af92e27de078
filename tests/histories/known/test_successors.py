"""A status that was computed for an object that is gone, and arrives when another has its name.

A UID in a merge patch on the status of a custom resource protects nothing: the API server answers
200, and writes to the successor.
"""

import asyncio
from random import Random
from typing import Any

import pytest

from bindery.api.names import API_VERSION
from bindery.kube.http.requests import ApiRequest
from bindery.kube.objects.resources import QUEUES
from tests.histories.apiserver.store import Change
from tests.histories.known.knownworld import KnownHistory, KnownWorld, plan
from tests.histories.known.objects import group, named, pod, queue
from tests.sizes import CHANCES

LATE_S = 3.0


def hold_status(world: KnownWorld, resource: str, name: str) -> asyncio.Event:
    """Hold each write of a scheduler to the status of an object on its way."""
    chance, sent = Random(f"late {world.plan.seed}"), asyncio.Event()

    def held_s(request: ApiRequest, caller: str) -> float:
        is_it = request.target.endswith(f"/{resource}/{name}/status")
        if not is_it or not caller.startswith("scheduler"):
            return 0.0
        sent.set()
        return LATE_S + chance.uniform(0.0, 1.0)

    world.network.held_s = held_s
    return sent


def statuses(changes: list[Change], resource: str, uid: str) -> list[dict[str, Any]]:
    """Return each status that an object had."""
    return [
        change.version.object.get("status", {})
        for change in changes
        if change.kind.plural == resource and change.version.object["metadata"]["uid"] == uid
    ]


@pytest.mark.parametrize("seed", CHANCES)
def test_a_podgroup_does_not_get_the_status_of_its_predecessor(seed: int) -> None:
    uids: list[str] = []

    async def people(world: KnownWorld) -> None:
        await world.submit(group("g", 1), [])
        await asyncio.sleep(5.0)
        sent = hold_status(world, "podgroups", "g")
        await world.submit(group("other", 1), [pod("g-0", "g")])
        await world.until(lambda: world.phases("g") == ["Running"])
        sent.clear()
        await sent.wait()
        await world.disband("g")
        await world.submit(group("g", 2), [])
        uids.append(world.group("g").metadata.uid)

    played = KnownHistory(plan(seed, nodes=1), people).expect()

    found = statuses(played.writes, "podgroups", uids[0])
    assert {each.get("state") for each in found} == {"Waiting"}
    assert all(not each.get("pods", {}).get("bound") for each in found)


@pytest.mark.parametrize("seed", CHANCES)
def test_a_queue_does_not_get_the_status_of_its_predecessor(seed: int) -> None:
    uids: list[str] = []

    async def people(world: KnownWorld) -> None:
        await world.client.create(QUEUES, queue("q", {"quota": "4"}))
        await asyncio.sleep(5.0)
        sent = hold_status(world, "queues", "q")
        await world.submit(group("g", 1, "q"), [pod("g-0", "g", 2)])
        await world.until(lambda: world.phases("g") == ["Running"])
        sent.clear()
        await sent.wait()
        await world.disband("g")
        await world.client.delete(QUEUES, "q")
        created = await world.client.create(QUEUES, named(API_VERSION, "Queue", "q", labels={}))
        uids.append(created.metadata.uid)

    played = KnownHistory(plan(seed, nodes=1), people).expect()

    for each in statuses(played.writes, "queues", uids[0]):
        assert not each.get("allocated"), each
