"""Trees of sub-groups and of queues are bounded in depth, and cheap to walk."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bindery.api.states import MOST_QUEUE_LEVELS, MOST_SUB_GROUP_LEVELS, MOST_SUB_GROUPS
from bindery.kube.objects.podgroups import SubGroup
from bindery.kube.objects.queues import Queue
from bindery.scheduler.model.jobs import NO_ROW
from bindery.scheduler.model.queuechains import ChainFlaw, trace
from bindery.scheduler.status.queues import QueueStatuses
from tests.scheduler.schedulerworld import (
    NOW,
    engine_with,
    gang,
    group,
    node,
    plan,
    pod,
    queue,
    report_of,
)


def sub_group_chain(levels: int) -> list[SubGroup]:
    """Return sub-groups, each below the one before; the last is the leaf `s{levels - 1}`."""
    return [
        SubGroup(name=f"s{i}", parent=f"s{i - 1}" if i else None, min_member=None)
        for i in range(levels)
    ]


def queue_chain(levels: int) -> list[Queue]:
    """Return queues, each below the one before, all with room for 4 cores."""
    return [queue(f"q{i}", parent=f"q{i - 1}" if i else None, cpu=4) for i in range(levels)]


# ---- sub-groups -------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [MOST_SUB_GROUP_LEVELS + 1, 950, MOST_SUB_GROUPS])
def test_a_podgroup_with_too_deep_a_tree_is_invalid_and_another_gang_is_planned(
    levels: int,
) -> None:
    leaf = f"s{levels - 1}"
    deep = group("deep", 1, sub_groups=sub_group_chain(levels))
    engine = engine_with(
        node("n"), deep, pod("deep-0", group="deep", sub_group=leaf), *gang("good", 2)
    )

    assert plan(engine) == {"good-0": "n", "good-1": "n"}
    report = report_of(engine, "deep")
    assert report.reason == "Invalid"
    assert f"more than {MOST_SUB_GROUP_LEVELS} levels deep" in report.message


def test_a_podgroup_with_the_deepest_allowed_tree_is_planned() -> None:
    leaf = f"s{MOST_SUB_GROUP_LEVELS - 1}"
    deep = group("deep", 1, sub_groups=sub_group_chain(MOST_SUB_GROUP_LEVELS))
    engine = engine_with(node("n"), deep, pod("deep-0", group="deep", sub_group=leaf))

    assert plan(engine) == {"deep-0": "n"}


def test_a_podgroup_with_a_long_cycle_of_sub_groups_is_invalid() -> None:
    count = MOST_SUB_GROUPS
    ring = [SubGroup(name=f"s{i}", parent=f"s{(i + 1) % count}") for i in range(count)]
    engine = engine_with(node("n"), group("ring", 1, sub_groups=ring), *gang("good", 2))

    assert plan(engine).keys() == {"good-0", "good-1"}
    (key,) = (key for key in engine.cluster.state.jobs if key.name == "ring")
    assert engine.cluster.state.jobs[key].invalid == "spec.subGroups: s0 is its own ancestor"


# ---- queues -----------------------------------------------------------------------------------


def test_queues_that_are_too_deep_report_it_and_the_others_are_served() -> None:
    queues = queue_chain(1200)
    lowest = f"q{MOST_QUEUE_LEVELS - 1}"
    engine = engine_with(
        node("n"),
        *queues,
        *gang("deep", 1, queue="q1199"),
        *gang("low", 1, queue=lowest),
        *gang("good", 2),
    )

    assert plan(engine) == {"good-0": "n", "good-1": "n", "low-0": "n"}
    assert report_of(engine, "deep").message == (
        f"queue q1199 is more than {MOST_QUEUE_LEVELS} levels deep"
    )
    writes = QueueStatuses(engine.cluster, "").writes(engine.report, NOW)
    reasons = {write.meta.name: (write.wanted.conditions or [])[0].reason for write in writes}
    assert reasons[lowest] == "Valid"
    assert reasons[f"q{MOST_QUEUE_LEVELS}"] == reasons["q1199"] == "TooDeep"


def test_pods_of_a_queue_that_is_too_deep_count_in_the_queues_above_it() -> None:
    engine = engine_with(
        node("n"),
        *queue_chain(100),
        pod("held", cpu=3, on="n", queue="q99"),
        pod("wide", cpu=2, queue="q5"),
        pod("narrow", cpu=1, queue="q5"),
    )

    assert plan(engine) == {"narrow": "n"}
    assert "limit" in report_of(engine, "wide").message


def test_a_long_cycle_of_queues_does_not_affect_other_queues() -> None:
    ring = [queue(f"q{i}", parent=f"q{(i + 1) % 1200}") for i in range(1200)]
    engine = engine_with(
        node("n"), *ring, queue("below", parent="q7"), *gang("odd", 1, queue="below"), pod("good")
    )

    assert plan(engine) == {"good": "n"}
    assert "its own ancestor" in report_of(engine, "odd").message
    writes = QueueStatuses(engine.cluster, "").writes(engine.report, NOW)
    conditions = {write.meta.name: (write.wanted.conditions or [])[0] for write in writes}
    assert conditions["q3"].reason == "Cycle"
    assert conditions["q3"].message.endswith("q9 is below … is below q3")
    assert conditions["below"].reason == "ParentNotReady"


def ancestors(parents: Sequence[int], row: int) -> list[int]:
    """Return `row` and all above it, until the root or a queue that has been seen."""
    rows: list[int] = []
    while row != NO_ROW and row not in rows:
        rows.append(row)
        row = parents[row]
    return rows


PARENTS = st.integers(1, 60).flatmap(
    lambda count: st.lists(st.integers(-1, count - 1), min_size=count, max_size=count)
)


@example(list(range(-1, 80)))
@example([*range(1, 80), 40])
@given(PARENTS)
def test_the_chain_of_a_valid_queue_contains_every_ancestor(parents: list[int]) -> None:
    found = trace(parents)

    for row, chain in enumerate(found.rows):
        above = ancestors(parents, row)
        closes = parents[above[-1]]
        flaw = found.flaws.get(row)
        assert chain[0] == row
        assert len(chain) <= MOST_QUEUE_LEVELS
        if closes == row:
            assert flaw is ChainFlaw.CYCLE
        elif closes != NO_ROW:
            assert flaw is ChainFlaw.BELOW_CYCLE
        elif len(above) > MOST_QUEUE_LEVELS:
            assert flaw is ChainFlaw.TOO_DEEP
            assert chain == (row, *above[-(MOST_QUEUE_LEVELS - 1) :])
        else:
            assert flaw is None
            assert chain == tuple(above)
