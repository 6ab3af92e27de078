"""Disruption budgets in the world of explain and whatif."""

import pytest

from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.world import World
from tests.scheduler.cache.test_budgets import GUARDED, budget
from tests.scheduler.schedulerworld import NOW, configuration, node, pod

PODS = [Uid("uid-a"), Uid("uid-b")]


def world(allowed: int) -> World:
    pods = [pod(name, on="n", labels=GUARDED) for name in ("a", "b")]
    return World([node("n", 9), *pods, budget(allowed=allowed)], configuration(), NOW)


def blocking(known: World) -> list[str]:
    cluster = known.engine.cluster
    found = (cluster.budgets.blocking(cluster.state.tasks[uid]) for uid in PODS)
    return [each.full_name for each in found if each is not None]


def test_evictions_count_against_their_budget_until_it_blocks_the_next() -> None:
    known = world(allowed=1)
    assert blocking(known) == []

    assert known.refused(PODS[:1]) is None

    assert blocking(known) == ["team/budget", "team/budget"]
    assert known.refused(PODS[1:]) == (PODS[1], "team/budget")


def test_evictions_do_not_count_if_one_of_them_is_refused() -> None:
    known = world(allowed=1)

    assert known.refused(PODS) == (PODS[1], "team/budget")

    assert blocking(known) == []


def test_a_query_for_the_refusing_budget_counts_no_eviction() -> None:
    known = world(allowed=1)
    cluster = known.engine.cluster
    tasks = [cluster.state.tasks[uid] for uid in PODS]

    assert cluster.budgets.count(tasks, {}) == (PODS[1], "team/budget")

    assert known.refused(PODS[:1]) is None


@pytest.mark.parametrize(("before", "now", "blocks"), [(1, 0, True), (0, 2, False)])
def test_the_newest_state_of_a_budget_is_used(before: int, now: int, blocks: bool) -> None:
    known = world(allowed=before)

    known.put(budget(allowed=now))

    assert bool(blocking(known)) is blocks
    assert bool(known.engine.cluster.failures.spared(NOW)) is (before == 0 and blocks)
    assert bool(known.refused(PODS)) is blocks
