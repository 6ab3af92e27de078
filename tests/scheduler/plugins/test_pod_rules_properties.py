"""The counts of pods by domain follow every Statement, and undo restores them exactly."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.scheduler.ledgers.base import Ledger, LedgerRefusalError
from bindery.scheduler.model.jobs import Task, TaskStatus
from bindery.scheduler.model.row_rules import RowRules
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Statement
from bindery.scheduler.plugins.hostports import PortLedger
from bindery.scheduler.plugins.interface.state import LedgerProvider
from bindery.scheduler.plugins.podaffinity.ledger import AffinityLedger
from bindery.scheduler.plugins.topologyspread.ledger import SpreadLedger
from tests.randomclusters import RandomCluster, engine_for
from tests.sizes import examples

WAITING = 6


class Counts:
    """The answers of the ledgers over domains and ports for all shapes of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        tasks = session.state.tasks.values()
        self._shapes = list(dict.fromkeys(task.shape for task in tasks if task.is_ours))

    def kept(self) -> list[Any]:
        """Return what the ledgers of the session have kept."""
        session = self._session
        ledgers = [session.ledger(kind) for kind in (AffinityLedger, SpreadLedger, PortLedger)]
        return list(self._answers(ledgers))

    def recounted(self) -> list[Any]:
        """Return the same of new ledgers."""
        session = self._session
        views = [
            plugin.ledger(session, session.state) for plugin in session.plugins.of(LedgerProvider)
        ]
        return list(self._answers(views))

    def _answers(self, ledgers: Sequence[Ledger]) -> Iterator[Any]:
        by_type = {type(ledger): ledger for ledger in ledgers}
        ports = by_type[PortLedger]
        assert isinstance(ports, PortLedger)
        for shape in self._shapes:
            for kind in (AffinityLedger, SpreadLedger):
                ledger = by_type[kind]
                assert isinstance(ledger, (AffinityLedger, SpreadLedger))
                yield _rules(ledger.rules(shape))
            yield ports.conflicts(shape.host_ports).tolist()


def _rules(rules: RowRules | None) -> Any:
    if rules is None:
        return None
    scores = rules.scores()
    failures = [(each.reason, each.nodes.tolist()) for each in rules.failures()]
    return (
        rules.open_now().tolist(),
        rules.open_later().tolist(),
        None if scores is None else np.round(scores, 9).tolist(),
        failures,
    )


def _try(statement: Statement, data: st.DataObject, tasks: Sequence[Task], nodes: int) -> None:
    task = data.draw(st.sampled_from(tasks))
    row = data.draw(st.integers(0, nodes - 1))
    try:
        if task.status is TaskStatus.RUNNING:
            statement.evict(task, "test")
        elif task.status is TaskStatus.PENDING and data.draw(st.booleans()):
            statement.allocate(task, row)
        else:
            statement.pipeline(task, row)
    except LedgerRefusalError:
        pass


@settings(max_examples=examples(9))
@given(seed=st.integers(0, 10_000), data=st.data())
def test_the_counts_equal_a_recount_after_every_step(seed: int, data: st.DataObject) -> None:
    cluster = RandomCluster(seed)
    engine = engine_for(cluster, *cluster.waiting(WAITING))
    with engine.session() as session:
        counts = Counts(session)
        before = counts.kept()
        assert before == counts.recounted()
        tasks = [task for task in session.state.tasks.values() if task.is_ours]
        with session.statement() as statement:
            marks = [(statement.savepoint(), before)]
            for _ in range(data.draw(st.integers(1, 12))):
                if data.draw(st.integers(0, 3)) == 0:
                    savepoint, was = data.draw(st.sampled_from(marks))
                    statement.rollback(savepoint)
                    marks = marks[: marks.index((savepoint, was)) + 1]
                    assert counts.kept() == was
                else:
                    _try(statement, data, tasks, len(session.state.nodes.nodes))
                    assert counts.kept() == counts.recounted()
                    marks.append((statement.savepoint(), counts.kept()))
        assert counts.kept() == before


def test_all_copies_of_a_repeated_term_are_removed_with_the_pod() -> None:
    cluster = RandomCluster(1754)  # p0 has the same required term twice
    engine = engine_for(cluster, *cluster.waiting(WAITING))
    with engine.session() as session:
        counts = Counts(session)
        before = counts.kept()
        tasks = {task.name: task for task in session.state.tasks.values()}
        first, second = tasks["p0"].shape.rules.affinity
        with session.statement() as statement:
            statement.evict(tasks["p0"], "test")

            assert first == second
            assert counts.kept() == counts.recounted() != before


@settings(max_examples=examples(9))
@given(seed=st.integers(0, 10_000))
def test_pods_that_no_rule_distinguishes_have_one_shape(seed: int) -> None:
    cluster = RandomCluster(seed)
    first, *others = cluster.waiting(WAITING)
    twin = {**first, "metadata": {**first["metadata"], "name": "twin", "uid": "uid-twin"}}
    twin["metadata"]["labels"] = {**first["metadata"]["labels"], "index": "7"}

    engine = engine_for(cluster, first, *others, twin)

    shapes: dict[str, Shape] = {t.name: t.shape for t in engine.cluster.state.tasks.values()}
    assert shapes["twin"] is shapes[first["metadata"]["name"]]


@settings(max_examples=examples(9))
@given(seed=st.integers(0, 10_000))
def test_the_order_in_which_pods_arrive_changes_no_rule(seed: int) -> None:
    cluster = RandomCluster(seed)
    turned = RandomCluster(seed)
    turned.pods.reverse()

    answers: list[list[str]] = []
    for each in (cluster, turned):
        with engine_for(each).session() as session:
            answers.append(sorted(map(repr, Counts(session).kept())))
    assert answers[0] == answers[1]
