"""A binding that arrives late: after its gang was given up, or its request was deleted.

It is under way in the network while the binder freezes. The next binder gives the gang up, and the
room goes to another gang. Then the binding arrives. Or people delete the request meanwhile.
"""

import asyncio
from random import Random

import pytest

from bindery.api.names import VOID_BINDINGS_ANNOTATION
from bindery.kube.http.requests import ApiRequest
from bindery.kube.objects.resources import BIND_REQUESTS
from tests.histories.known.knownworld import KnownHistory, KnownWorld, plan
from tests.histories.known.objects import group, pod
from tests.histories.reading import all_of
from tests.histories.world import NAMESPACE
from tests.sizes import CHANCES

LATE_S = 60.0
SCHEDULERS = ("scheduler-0", "scheduler-1")


def requests(world: KnownWorld) -> set[str]:
    """Return the phases of the requests that carry gangs."""
    return {
        str(each.status.phase)
        for each in all_of(world.server, BIND_REQUESTS)
        if each.spec.statements
    }


def hold_bindings(world: KnownWorld, gang: str) -> asyncio.Event:
    """Hold the first bindings of a gang, and freeze their binder once they are under way."""
    chance, sent = Random(f"late {world.plan.seed}"), asyncio.Event()
    left = {each.metadata.name for each in world.pods_of(gang)}

    def held_s(request: ApiRequest, caller: str) -> float:
        name = request.target.removesuffix("/binding").rpartition("/")[2]
        if request.resource != "pods/binding" or name not in left:
            return 0.0
        left.remove(name)
        if not left:
            world.freeze(caller)
            sent.set()
        return LATE_S + chance.uniform(0.0, 5.0)

    world.network.held_s = held_s
    return sent


@pytest.mark.parametrize("seed", CHANCES)
@pytest.mark.parametrize("gives_up", ["scheduler", "binder"])
def test_a_binding_that_arrives_after_its_gang_was_given_up_has_no_effect(
    seed: int, gives_up: str
) -> None:
    async def people(world: KnownWorld) -> None:
        await world.submit(group("g", 2), [pod(f"g-{index}", "g", 3) for index in range(2)])
        sent = hold_bindings(world, "g")
        await sent.wait()
        if gives_up == "binder":
            world.freeze(*SCHEDULERS)
        await world.remove("g-1")
        if gives_up == "binder":
            await world.until(lambda: requests(world) == {"Failed"})
            world.wake(*SCHEDULERS)
        await world.until(lambda: world.group("g").status.state == "Waiting")
        await world.submit(group("h", 2), [pod(f"h-{index}", "h", 3) for index in range(2)])
        await world.until(lambda: world.bound("h") == 2)
        await asyncio.sleep(LATE_S)
        assert world.bound("g") == 0

    played = KnownHistory(plan(seed, nodes=2), people).expect()

    voided = [
        change.writer.caller.partition("-")[0]
        for change in played.writes
        if change.kind.plural == "pods"
        and VOID_BINDINGS_ANNOTATION in change.version.object["metadata"]["annotations"]
    ]
    assert voided[0] == gives_up


@pytest.mark.parametrize("seed", [16, 55, 77, 82, 87])  # the room was given away in these
def test_a_pod_that_is_bound_just_after_its_request_was_deleted_has_its_room(seed: int) -> None:
    async def people(world: KnownWorld) -> None:
        late_s = Random(f"late {seed}").uniform(0.05, 0.15)
        world.network.held_s = lambda request, _: (
            late_s if request.target.endswith("g-1/binding") else 0.0
        )
        kept = {"preemptibility": "NonPreemptible"}
        await world.submit(group("g", 2, **kept), [pod(f"g-{n}", "g", 2) for n in range(2)])
        await world.until_bound("g", 1)
        await world.submit(group("h", 1, priorityClassName="high"), [pod("h-0", "h", 2)])
        for each in all_of(world.server, BIND_REQUESTS):
            if each.spec.statements:
                await world.client.delete(BIND_REQUESTS, each.metadata.name, NAMESPACE)
        await asyncio.sleep(10.0)
        await world.remove("g-0", "g-1")
        await world.until_bound("h", 1)

    KnownHistory(plan(seed, nodes=1), people).expect()
