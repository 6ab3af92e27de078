"""Statements, case by case: replayed plans, closed Statements, deleted pods."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings

from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation
from bindery.scheduler.model.jobs import Task, TaskStatus, Uid
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Statement, StatementClosedError, StatementState
from tests.scheduler.plannedworlds import World, worlds
from tests.scheduler.recounting import view
from tests.scheduler.schedulerworld import add, delete, engine_with, modify, node, pod, session_of
from tests.scheduler.statementmachine import MoodyPlugin
from tests.sizes import examples


def fill(session: Session, statement: Statement) -> None:
    """Evict every pod that can be, then put every pending pod on the first node that takes it."""
    state = session.state
    for task in sorted(state.tasks.values(), key=lambda task: task.uid):
        with suppress(LedgerRefusalError):
            statement.evict(task, "makes room")
    for task in sorted(state.tasks.values(), key=lambda task: task.uid):
        for row in sorted(state.nodes.rows.values()):
            for place in (statement.allocate, statement.pipeline):
                try:
                    place(task, row)
                except LedgerRefusalError:
                    continue
                break


@given(worlds())
@settings(max_examples=examples(14), deadline=None)
def test_a_plan_is_replayed_whole_or_not_at_all(world: World) -> None:
    engine, moody = engine_with(*world.objects), MoodyPlugin()
    session = session_of(engine.cluster, moody)
    empty = view(session.state)
    statement = session.statement()
    fill(session, statement)
    planned, plan = view(session.state), statement.extract()
    statement.discard()
    assert view(session.state) == empty

    again = session.statement()
    for taken in range(len(plan.operations)):
        moody.books.refuses_after = taken
        with pytest.raises(LedgerRefusalError, match="not in the mood"):
            again.replay(plan)
        assert (view(session.state), again.operations) == (empty, ())
        assert moody.books.entries == {}
    again.replay(plan)

    assert view(session.state) == planned


class Broken:
    """A plugin with a ledger that has a defect."""

    name = "broken"

    def __init__(self, *, on_apply: int = -1, on_revert: int = -1) -> None:
        self.on_apply, self.on_revert = on_apply, on_revert

    def ledger(self, session: Session, state: PlanState) -> "Broken":  # noqa: ARG002
        return self

    def apply(self, operation: Operation) -> None:  # noqa: ARG002
        self.on_apply -= 1
        if self.on_apply == -1:
            raise ZeroDivisionError

    def revert(self, operation: Operation) -> None:  # noqa: ARG002
        self.on_revert -= 1
        if self.on_revert == -1:
            raise ZeroDivisionError


def two_pods() -> tuple[Cluster, Task, Task]:
    cluster = engine_with(node("n"), pod("a"), pod("b")).cluster
    return cluster, cluster.state.tasks[Uid("uid-a")], cluster.state.tasks[Uid("uid-b")]


@pytest.mark.parametrize("broken", [{"on_apply": 1}, {"on_revert": 0}, {"on_revert": 1}])
def test_a_ledger_with_a_defect_leaves_nothing_behind(broken: dict[str, int]) -> None:
    cluster, first, second = two_pods()
    before = view(cluster.state)
    statement = session_of(cluster, Broken(**broken)).statement()

    def do() -> None:
        with statement:
            statement.allocate(first, 0)
            statement.allocate(second, 0)

    with pytest.raises(ZeroDivisionError):
        do()

    assert statement.state is StatementState.DISCARDED
    assert view(cluster.state) == before


USES: dict[str, Callable[[Statement, Task], object]] = {
    "allocate": lambda statement, task: statement.allocate(task, 0),
    "pipeline": lambda statement, task: statement.pipeline(task, 0),
    "evict": lambda statement, task: statement.evict(task, ""),
    "savepoint": lambda statement, _: statement.savepoint(),
    "extract": lambda statement, _: statement.extract(),
    "merge": lambda statement, _: statement.merge([]),
    "surrender": lambda statement, _: statement.surrender(),
    "commit": lambda statement, _: statement.commit(),
    "discard": lambda statement, _: statement.discard(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("end", ["commit", "discard", "surrender"])
def test_a_closed_statement_cannot_be_used(use: str, end: str) -> None:
    cluster, first, second = two_pods()
    statement = session_of(cluster).statement()
    statement.allocate(first, 0)
    getattr(statement, end)()
    before = view(cluster.state)

    with pytest.raises(StatementClosedError):
        USES[use](statement, second)

    assert view(cluster.state) == before


def test_a_statement_cannot_be_merged_into_itself() -> None:
    cluster, first, _ = two_pods()
    statement = session_of(cluster).statement()
    statement.allocate(first, 0)

    with pytest.raises(StatementClosedError, match="itself"):
        statement.merge([statement])

    assert len(statement.operations) == 1


def test_merged_operations_are_undone_with_the_receiving_statement() -> None:
    cluster, first, second = two_pods()
    session, before = session_of(cluster), view(cluster.state)
    one, other = session.statement(), session.statement()
    one.allocate(first, 0)
    other.allocate(second, 0)

    one.merge([other])
    one.discard()

    assert view(cluster.state) == before


def test_a_plan_with_a_deleted_node_is_refused_whole() -> None:
    cluster, first, second = two_pods()
    add(cluster, node("z"))
    session = session_of(cluster)
    statement = session.statement()
    statement.allocate(first, session.state.nodes.rows["n"])
    statement.allocate(second, session.state.nodes.rows["z"])
    plan = statement.extract()
    statement.discard()
    delete(cluster, node("z"))
    before = view(cluster.state)

    with pytest.raises(LedgerRefusalError, match="node z is gone"):
        session_of(cluster).statement().replay(plan)

    assert view(cluster.state) == before


def test_a_plan_with_a_deleted_or_changed_pod_is_refused_whole() -> None:
    cluster, first, second = two_pods()
    statement = session_of(cluster).statement()
    statement.allocate(first, 0)
    statement.allocate(second, 0)
    plan = statement.extract()
    statement.discard()
    modify(cluster, pod("b", cpu=2))
    before = view(cluster.state)

    with pytest.raises(LedgerRefusalError, match="pod b has changed or gone"):
        session_of(cluster).statement().replay(plan)

    assert view(cluster.state) == before


@pytest.mark.parametrize("running", [pod("r", on="unknown"), pod("r", on="n", scheduler="other")])
def test_a_pod_that_holds_no_releasable_room_is_not_evicted(running: object) -> None:
    cluster, _, _ = two_pods()
    add(cluster, running)  # type: ignore[arg-type]  # pods are objects
    before = view(cluster.state)

    with pytest.raises(LedgerRefusalError):
        session_of(cluster).statement().evict(cluster.state.tasks[Uid("uid-r")], "")

    assert view(cluster.state) == before


def test_an_evicted_pod_makes_room_for_a_promise_and_not_for_an_allocation() -> None:
    cluster = engine_with(node("n", cpu=2), pod("old", cpu=2, on="n"), pod("new", cpu=2)).cluster
    tasks, statement = cluster.state.tasks, session_of(cluster).statement()
    new = tasks[Uid("uid-new")]
    statement.evict(tasks[Uid("uid-old")], "makes room")

    with pytest.raises(LedgerRefusalError, match="node n has 0 of cpu, 2 requested"):
        statement.allocate(new, 0)
    statement.pipeline(new, 0)

    assert new.status is TaskStatus.PIPELINED


def test_a_pod_that_another_statement_evicts_is_not_moved() -> None:
    engine = engine_with(node("n0"), node("n1"), pod("p", on="n0"))
    session = session_of(engine.cluster)
    (task,), before = session.state.tasks.values(), view(session.state)
    one, other = session.statement(), session.statement()
    one.evict(task, "for a test")

    with pytest.raises(LedgerRefusalError, match="pod p is Releasing, not Pending"):
        other.pipeline(task, session.state.nodes.rows["n1"])

    one.discard()
    other.discard()
    assert view(session.state) == before


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_pod_is_moved_by_the_statement_that_evicts_it(is_merged: bool) -> None:
    engine = engine_with(node("n0"), node("n1"), pod("p", on="n0"))
    session = session_of(engine.cluster)
    (task,), before = session.state.tasks.values(), view(session.state)
    statement = session.statement()
    statement.evict(task, "for a test")
    if is_merged:
        one, statement = statement, session.statement()
        statement.merge([one])

    statement.pipeline(task, session.state.nodes.rows["n1"])

    assert task.status is TaskStatus.PIPELINED
    statement.discard()
    assert view(session.state) == before


def test_a_plan_is_refused_after_the_undo_of_an_eviction_that_it_needs() -> None:
    engine = engine_with(node("n", 1), pod("a", on="n"), pod("b"))
    session = session_of(engine.cluster)
    tasks, before = {t.name: t for t in session.state.tasks.values()}, view(session.state)
    one, other = session.statement(), session.statement()
    one.evict(tasks["a"], "for a test")
    other.pipeline(tasks["b"], session.state.nodes.rows["n"])
    plan = other.extract()
    one.discard()
    other.discard()

    again = session.statement()
    with pytest.raises(LedgerRefusalError, match="node n has 0 of cpu, 1 requested"):
        again.replay(plan)

    assert (view(session.state), again.operations) == (before, ())
