"""A gang goes while a write of its binder is under way, which stops or works on."""

import asyncio

import pytest

from bindery.binder.plugins.volumes.writes import SELECTED_NODE
from bindery.kube.http.requests import ApiRequest
from bindery.kube.objects.storage import CLAIMS
from tests.histories.known.knownworld import KnownHistory, KnownWorld, plan
from tests.histories.known.test_deleted_requests import mark, requests, submit
from tests.histories.reading import all_of
from tests.sizes import CHANCES


def hold_mark(world: KnownWorld, late_s: float, *, stops: bool) -> asyncio.Event:
    """Let the mark of a claim be under way for `late_s`; `stops`: stop its binder meanwhile."""
    sent = asyncio.Event()

    def held_s(request: ApiRequest, caller: str) -> float:
        if sent.is_set() or SELECTED_NODE.encode() not in (request.body or b""):
            return 0.0
        sent.set()
        if stops:
            world.stop(caller)
        return late_s

    world.network.held_s = held_s
    return sent


def play(seed: int, late_s: float, *, stops: bool) -> None:
    async def people(world: KnownWorld) -> None:
        sent = hold_mark(world, late_s, stops=stops)
        await submit(world)
        await sent.wait()
        await world.disband("g")
        await world.until(lambda: not requests(world))
        await asyncio.sleep(late_s)
        assert mark(world) is None
        assert len(all_of(world.server, CLAIMS)) == 1

    KnownHistory(plan(seed, nodes=2), people).expect()


@pytest.mark.parametrize("seed", CHANCES)
@pytest.mark.parametrize("late_s", [3.0, 8.0, 14.0])
def test_a_write_of_a_binder_that_stops_arrives_before_the_next_one_rolls_back(
    seed: int, late_s: float
) -> None:
    """It is waited for while others are at work, then as what is left, or the Lease expires."""
    play(seed, late_s, stops=True)


@pytest.mark.parametrize("seed", CHANCES)
def test_a_write_of_an_interrupted_step_arrives_before_its_roll_back(seed: int) -> None:
    play(seed, 3.0, stops=False)
