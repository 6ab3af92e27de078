"""Preferences among gangs of one queue and priority."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from bindery.api.configuration import DisruptionConfiguration, VictimPreference
from bindery.api.disruption import KARPENTER_ANNOTATION
from bindery.api.names import DO_NOT_DISRUPT_ANNOTATION
from bindery.api.times import timestamp
from bindery.scheduler.solver.victims import PodCost, preference
from tests.scheduler.schedulerworld import Clock, add, engine_with, group, modify, node, plan, pod

NOW = 10_000.0
times = st.floats(0, NOW)
costs = st.builds(PodCost, share=st.floats(0, 1), started_at=times, checkpoint_at=times)
gangs = st.lists(costs, min_size=1, max_size=4)


@given(gang=gangs, more=costs)
def test_a_larger_gang_is_never_cheaper_and_never_loses_less_work(
    gang: list[PodCost], more: PodCost
) -> None:
    for kind in (VictimPreference.CHEAPEST, VictimPreference.LEAST_WORK_LOST):
        assert preference(kind, [*gang, more], NOW) <= preference(kind, gang, NOW)


@given(cost=costs, later=times)
def test_a_later_checkpoint_never_means_more_lost_work(cost: PodCost, later: float) -> None:
    saved = PodCost(cost.share, cost.started_at, max(cost.checkpoint_at, later))
    kind = VictimPreference.LEAST_WORK_LOST

    assert preference(kind, [saved], NOW) >= preference(kind, [cost], NOW)


@given(gang=gangs)
def test_a_checkpoint_in_the_future_counts_as_a_checkpoint_now(gang: list[PodCost]) -> None:
    ahead = [PodCost(pod.share, pod.started_at, NOW + 500) for pod in gang]

    assert preference(VictimPreference.LEAST_WORK_LOST, ahead, NOW) == 0


@given(gang=gangs, preferred=st.sampled_from(list(VictimPreference)))
def test_the_order_of_the_pods_of_a_gang_makes_no_difference(
    gang: list[PodCost], preferred: VictimPreference
) -> None:
    one, other = (preference(preferred, pods, NOW) for pods in (gang, gang[::-1]))

    assert abs(one - other) < 1e-6


def test_an_annotation_with_a_duration_counts_until_the_duration_has_passed() -> None:
    clock = Clock()
    spare = DisruptionConfiguration(spare_from=("preempt",))
    victim = pod("victim", cpu=8, on="n", priority=10)
    victim.metadata.annotations[KARPENTER_ANNOTATION] = "1h"
    started = msgspec.structs.replace(victim.status, start_time=timestamp(clock.now - 1800))
    victim = msgspec.structs.replace(victim, status=started)
    engine = engine_with(node("n"), victim, disruption=spare, clock=clock)
    add(engine.cluster, group("g"), pod("high", cpu=8, group="g", priority=90))
    plan(engine)
    assert not engine.report.evictions

    clock.now += 1800
    plan(engine)

    assert [each.task.name for each in engine.report.evictions] == ["victim"]


def test_a_new_annotation_counts_from_the_next_cycle() -> None:
    spare = DisruptionConfiguration(spare_from=("preempt",))
    victim = pod("victim", cpu=8, on="n", priority=10)
    engine = engine_with(node("n"), victim, disruption=spare)
    asking = pod("victim", cpu=8, on="n", priority=10)
    asking.metadata.annotations[DO_NOT_DISRUPT_ANNOTATION] = "true"
    modify(engine.cluster, asking)
    add(engine.cluster, group("g"), pod("high", cpu=8, group="g", priority=90))
    plan(engine)
    assert not engine.report.evictions

    modify(engine.cluster, victim)
    plan(engine)
    assert [each.task.name for each in engine.report.evictions] == ["victim"]
