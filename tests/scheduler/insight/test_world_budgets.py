"""Disruption budgets in a world that questions are asked about."""

import pytest

from bindery.scheduler.insight.world import World
from bindery.scheduler.model.jobs import Uid
from tests.scheduler.cache.test_budgets import GUARDED, budget
from tests.scheduler.schedulerworld import NOW, configuration, node, pod

PODS = [Uid("uid-a"), Uid("uid-b")]


def world(allowed: int) -> World:
    pods = [pod(name, on="n", labels=GUARDED) for name in ("a", "b")]
    return World([node("n", 9), *pods, budget(allowed=allowed)], configuration(), NOW)


def blocking(known: World) -> list[str]:
    cluster = known.engine.cluster
    found = (cluster.blocking_budget(cluster.state.tasks[uid]) for uid in PODS)
    return [each.full_name for each in found if each is not None]


def test_evictions_count_against_their_budget_which_then_blocks_the_next() -> None:
    known = world(allowed=1)
    assert blocking(known) == []

    assert known.refused(PODS[:1]) is None

    assert blocking(known) == ["team/budget", "team/budget"]
    assert known.refused(PODS[1:]) == (PODS[1], "team/budget")


def test_evictions_of_which_one_is_refused_count_for_nothing() -> None:
    known = world(allowed=1)

    assert known.refused(PODS) == (PODS[1], "team/budget")

    assert blocking(known) == []


def test_asking_what_would_be_refused_counts_nothing() -> None:
    known = world(allowed=1)

    assert known.refusing_budget(PODS) == "team/budget"

    assert known.refused(PODS[:1]) is None


@pytest.mark.parametrize(("before", "now", "blocks"), [(1, 0, True), (0, 2, False)])
def test_a_budget_goes_by_its_newest_state(before: int, now: int, blocks: bool) -> None:
    known = world(allowed=before)

    known.add(budget(allowed=now))

    assert bool(blocking(known)) is blocks
    assert bool(known.engine.cluster.failures.spared(NOW)) is (before == 0 and blocks)
    assert bool(known.refused(PODS)) is blocks
