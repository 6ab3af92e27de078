"""Kept room goes with the pods of its gang, not before their evictions are seen."""

import pytest

from bindery.api.times import timestamp
from bindery.kube.objects import watched as kube
from bindery.scheduler.actions.holding import hold_rooms
from bindery.scheduler.engine import Engine
from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.planning.session import Session
from tests.scheduler.planning.test_stages import (
    LEADER_READY,
    leader_runs,
    member,
    staged,
    stages_of,
)
from tests.scheduler.schedulerworld import (
    Clock,
    add,
    delete,
    engine_with,
    gang,
    modify,
    node,
    plan,
    pod,
)

NODE = node("n", 8, 3)


def held(clock: Clock, *more: kube.KubeObject) -> Engine:
    """Return an engine with a gang that runs one pod and keeps room for two, on a full node."""
    leader = leader_runs(clock, priority=1)
    return engine_with(NODE, staged(*LEADER_READY), leader, *more, clock=clock)


def claimant() -> list[kube.KubeObject]:
    return gang("high", 2, gpu=1, priority=50)


def evicted(engine: Engine) -> list[str]:
    return [each.task.name for each in engine.report.evictions]


def test_the_room_of_a_gang_is_not_given_away_before_its_eviction_is_seen() -> None:
    clock = Clock()
    engine = held(clock, *claimant(), pod("other", 0, 1))
    plan(engine)
    assert evicted(engine) == ["leader-0"]

    assert plan(engine) == {}, "the API server may refuse the eviction"
    assert evicted(engine) == [], "the room is promised"
    assert stages_of(engine) == {}

    modify(engine.cluster, leader_runs(clock, priority=1, deleting=timestamp(clock.now)))
    assert set(plan(engine)) == {"high-0", "high-1"}


def test_a_gang_whose_eviction_is_refused_has_its_room_again() -> None:
    clock = Clock()
    engine = held(clock, *claimant())
    plan(engine)
    plan(engine)

    (leader,) = [t for t in engine.cluster.state.tasks.values() if t.name == "leader-0"]
    engine.cluster.not_evicted(leader.uid)
    delete(engine.cluster, *claimant())
    add(engine.cluster, pod("other", 0, 1))

    assert plan(engine) == {}
    assert stages_of(engine) == {"workers": (("n",), True)}


def test_the_room_of_a_stage_that_is_gone_waits_for_the_eviction_of_the_first_stage() -> None:
    clock = Clock()
    workers = [member(f"w-{i}", "workers", on="n", priority=1) for i in range(2)]
    engine = held(clock, *workers, *claimant())
    plan(engine)
    assert sorted(evicted(engine)) == ["leader-0", "w-0", "w-1"]

    delete(engine.cluster, *workers)
    assert plan(engine) == {}

    delete(engine.cluster, leader_runs(clock, priority=1))
    assert set(plan(engine)) == {"high-0", "high-1"}


def test_in_the_plan_that_evicts_a_gang_its_room_is_promised_not_used() -> None:
    engine = held(Clock(), pod("other", 0, 1))
    with engine.session() as session:
        hold_rooms(session)
        room = room_of(session)
        other, leader = (
            next(t for t in session.state.tasks.values() if t.name == name)
            for name in ("other", "leader-0")
        )
        with session.statement() as statement:
            before = statement.savepoint()
            statement.evict(leader, "a test")
            with pytest.raises(LedgerRefusalError):
                statement.allocate(other, leader.row)
            statement.pipeline(other, leader.row)
            statement.rollback(before)
            with pytest.raises(LedgerRefusalError):
                statement.pipeline(other, leader.row)

        assert room_of(session) == room


def room_of(session: Session) -> list[list[list[int]]]:
    nodes = session.state.nodes
    return [each.tolist() for each in (nodes.idle, nodes.releasing, nodes.pipelined)]
