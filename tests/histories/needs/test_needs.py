"""What gangs need is drawn for itself, and can be taken out."""

from random import Random

from tests.histories.needs import plans
from tests.histories.plan import draw


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


def test_needs_leave_the_chance_of_the_rest_of_a_plan() -> None:
    for seed in range(50):
        plan = draw(seed)
        plain = [g for g in plan.gangs if g.needs is None and g.name.startswith("g")]
        nodes = Random(f"plan {seed}").randint(2, 5)
        assert plan.nodes in (nodes, min(nodes, 2), 4)  # as drawn, contested, or in a burst
        if all(gang.name != "late0" for gang in plan.gangs):  # such a world has fewer gangs
            assert [gang.name for gang in plain][:2] == ["g0", "g1"]


def test_every_part_of_a_plan_can_be_taken_out() -> None:
    plan = next(each for each in map(draw, range(1000)) if each.troubles and each.acts)
    while plan.parts():
        smaller = plan.without(0)
        assert smaller.parts() == plan.parts() - 1
        plan = smaller

    assert (plan.gangs, plan.faults, plan.acts, plan.troubles) == ((), (), (), ())
