"""What gangs need is drawn for itself, and can be taken out."""

from dataclasses import replace

import pytest

from tests.histories.drawing import draw
from tests.histories.history import play
from tests.histories.needs import plans


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
    needy = [frozenset(gang.name for gang in plans.draw(seed).gangs) for seed in range(100)]
    nothing = plans.Drawn(plans.Ground(), (), ())
    monkeypatch.setattr(plans, "draw", lambda _seed: nothing)

    for plan, names in zip(whole, needy, strict=True):
        plain = tuple(gang for gang in plan.gangs if gang.name not in names)
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
