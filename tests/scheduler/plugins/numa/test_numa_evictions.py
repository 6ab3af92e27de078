"""Zones in plans that evict, and in Statements that are undone."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.planning.session import Session
from bindery.scheduler.plugins.numa.ledger import NumaLedger
from tests.scheduler.numaworld import (
    RESTRICTED,
    SINGLE,
    NumaWorld,
    aligned_pod,
    bound,
    numa_node,
    on_zone,
    report,
)
from tests.scheduler.schedulerworld import places


def full_node(name: str, *zones: int, recorded: bool = True) -> list[Any]:
    """Return a node with a pod of 4 CPUs on each zone; `zones`: those of pods of low priority."""
    items: list[Any] = [numa_node(name)]
    for zone in (0, 1):
        item = aligned_pod(f"{name}-{zone}", cpu=4, priority=0 if zone in zones else 1000)
        items.append(bound(item, name, on_zone(zone, 4) if recorded else None))
    pods = [f"uid-{name}-{zone}" for zone in (0, 1)]
    return [*items, report(name, free={"cpu": [0, 0], "memory": [7, 7]}, pods=pods)]


def test_victims_release_their_zones_for_the_preemptor() -> None:
    world = NumaWorld(*full_node("n", 1), aligned_pod("p", cpu=3, priority=500))

    assert places(world.drafts()) == {}
    assert [each.task.name for each in world.engine.report.evictions] == ["n-1"]


def test_pods_on_several_zones_are_not_evicted_for_one_that_cannot_be_aligned() -> None:
    small = [
        bound(aligned_pod(f"s{zone}", cpu=1, priority=0), "n", on_zone(zone, 1)) for zone in (0, 1)
    ]
    large = [
        bound(aligned_pod(f"l{zone}", cpu=2, priority=1000), "n", on_zone(zone, 2))
        for zone in (0, 1)
    ]
    stored = report(
        "n", free={"cpu": [1, 1], "memory": [6, 6]}, pods=["uid-s0", "uid-s1", "uid-l0", "uid-l1"]
    )
    world = NumaWorld(numa_node("n"), *small, *large, stored, aligned_pod("p", cpu=3, priority=500))

    assert places(world.drafts()) == {}
    assert world.engine.report.evictions == []  # 4 CPUs would be free, but 2 on each zone


def test_a_pod_waits_for_the_zone_of_its_victim() -> None:
    victim, *rest = full_node("n", 1)[1:3][::-1]
    world = NumaWorld(*full_node("n", 1), aligned_pod("p", cpu=4, priority=500))
    world.drafts()
    del rest

    world.remove(victim)
    assert world.zones() == {"p": ("n", [1])}


def snapshot(session: Session) -> list[Any]:
    table = session.ledger(NumaLedger)._table  # the invariant is about the inside
    sides = [
        (side.arrays.free, side.arrays.split, side.arrays.groups)
        for side in (table.now, table.later)
    ]
    return [np.copy(each) for side in sides for each in side] + [np.copy(table.apart)]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["allocate", "pipeline", "evict", "back"]),
        st.integers(0, 11),
        st.integers(0, 3),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(
    steps=STEPS,
    policy=st.sampled_from([SINGLE, RESTRICTED]),
    cpus=st.lists(st.integers(1, 6), min_size=8, max_size=8),
)
def test_undo_of_a_plan_restores_all_zones(
    steps: list[tuple[str, int, int]], policy: str, cpus: list[int]
) -> None:
    items: list[Any] = []
    for name in ("a", "b", "c", "d"):
        running = bound(aligned_pod(f"r-{name}", cpu=2), name, on_zone(1, 2))
        stored = report(
            name, policy=policy, free={"cpu": [4, 2], "memory": [8, 7]}, pods=[f"uid-r-{name}"]
        )
        items += [numa_node(name), running, stored]
    items += [
        aligned_pod(f"p-{i}", cpu=cpu, memory="9Gi" if cpu > 4 else "1Gi")
        for i, cpu in enumerate(cpus)
    ]
    world = NumaWorld(*items)
    with world.engine.session() as session:
        before = snapshot(session)
        tasks = sorted(session.state.tasks.values(), key=lambda task: task.name)
        with session.statement() as statement:
            savepoints = [statement.savepoint()]
            for action, which, row in steps:
                task = tasks[which]
                try:
                    if action == "back":
                        statement.rollback(
                            savepoints.pop() if len(savepoints) > 1 else savepoints[0]
                        )
                        continue
                    savepoints.append(statement.savepoint())
                    if action == "evict":
                        statement.evict(task, "test")
                    else:
                        getattr(statement, action)(task, row)
                except LedgerRefusalError:
                    continue
            table = session.ledger(NumaLedger)._table
            assert (table.now.arrays.free >= 0).all()
            assert (table.later.arrays.free >= 0).all()
            plan = statement.extract()
            during = snapshot(session)
        for one, other in zip(before, snapshot(session), strict=True):
            assert np.array_equal(one, other)
        with session.statement() as again:
            again.replay(plan)
            for one, other in zip(during, snapshot(session), strict=True):
                assert np.array_equal(one, other)
