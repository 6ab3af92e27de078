"""What gangs need is drawn for itself, can be taken out, and is judged: defects in it are found."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bindery.binder.plugins.dra.plugin import DynamicResources
from bindery.binder.plugins.hami.places import LockHolder
from bindery.binder.plugins.hami.queues import LockQueues
from bindery.binder.plugins.volumes.writes import VolumeWriter
from bindery.scheduler.actions import holding
from tests.histories.history import play
from tests.histories.needs import plans
from tests.histories.plan import Plan, draw

SOON_S = 60.0
WITHIN = 100


def test_each_need_is_in_a_part_of_the_histories() -> None:
    grounds = [plans.draw(seed).ground for seed in range(400)]

    for count in (
        sum(ground.has_volumes for ground in grounds),
        sum(ground.devices > 0 for ground in grounds),
        sum(ground.card_nodes > 0 for ground in grounds),
        sum(ground.racks > 0 for ground in grounds),
    ):
        assert 60 < count < 240
    assert any(ground == plans.Ground() for ground in grounds)


def test_needs_leave_the_chance_of_the_rest_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [draw(seed) for seed in range(100)]
    nothing = plans.Drawn(plans.Ground(), (), ())
    monkeypatch.setattr(plans, "draw", lambda _seed: nothing)

    for plan in whole:
        plain = tuple(gang for gang in plan.gangs if gang.needs is None)
        rest = replace(plan, gangs=plain, ground=nothing.ground, troubles=())
        assert rest == draw(plan.seed)


def test_every_part_of_a_plan_can_be_taken_out() -> None:
    plan = next(each for each in map(draw, range(1000)) if each.troubles and each.acts)
    while plan.parts():
        smaller = plan.without(0)
        assert smaller.parts() == plan.parts() - 1
        plan = smaller

    assert (plan.gangs, plan.faults, plan.acts, plan.troubles) == ((), (), (), ())


def test_devices_of_a_claim_that_people_delete_are_released() -> None:
    """The seed found that they were not; the binder had made the claim."""
    assert not play(draw(615)).problem


async def _do_nothing(*_arguments: Any) -> None:
    """Leave everything as it is."""


def _free(
    held: Callable[..., Any],
) -> Callable[..., Any]:
    """Judge that every lock may be taken."""

    async def judged(queues: LockQueues, *arguments: Any) -> LockHolder:
        holder: LockHolder = await held(queues, *arguments)
        return replace(holder, may_be_taken=True)

    return judged


def _volumes(plan: Plan) -> bool:
    return plan.ground.has_volumes


def _devices(plan: Plan) -> bool:
    return plan.ground.devices > 0


def _cards(plan: Plan) -> bool:
    return plan.ground.card_nodes > 0


def _stages(plan: Plan) -> bool:
    return plan.ground.racks > 0


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("owner", "name", "broken", "has", "first", "found"),
    [
        (VolumeWriter, "deselect", _do_nothing, _volumes, 7, "still chosen"),
        (DynamicResources, "rollback", _do_nothing, _devices, 54, "reserved for"),
        (LockQueues, "_held", _free(LockQueues._held), _cards, 1, "robbed"),
        (holding, "_is_kept", lambda *_: True, _stages, 21, "free room"),
    ],
    ids=[
        "the node on a claim stays",
        "reservations of devices stay",
        "locks are taken from anybody",
        "kept room is never given back",
    ],
)
def test_what_is_broken_on_purpose_is_found(
    owner: Any,
    name: str,
    broken: Any,
    has: Callable[[Plan], bool],
    first: int,
    found: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, name, broken)
    drawn = (plan for plan in map(draw, range(first, first + WITHIN)) if has(plan))

    problems = (play(plan, SOON_S).problem for plan in drawn)

    assert found in next(problem for problem in problems if problem)
