"""Fairness between the users of a queue, in sessions over watched objects."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bindery.api.names import USER_KEY
from bindery.kube.objects import watched as kube
from bindery.kube.objects.queues import FairUsers, Queue
from bindery.scheduler.engine import Engine
from bindery.scheduler.ledgers.base import LedgerRefusalError
from bindery.scheduler.ledgers.users import UserLedger
from bindery.scheduler.model.jobs import Job, JobKey
from bindery.scheduler.model.verdicts import SortKey
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.work_list import WorkList
from bindery.scheduler.plugins.view import SessionView
from tests.scheduler.schedulerworld import (
    engine_with,
    group,
    modify,
    node,
    plan,
    pod,
    queue,
    session_of,
)

MINUTE = "2026-01-01T00:{:02}:00Z"


def fair(name: str = "research") -> Queue:
    made = queue(name)
    return replace(made, spec=replace(made.spec, fair_users=FairUsers()))


def single(name: str, user: str, on: str = "", cpu: int = 1) -> kube.Pod:
    return pod(name, cpu, queue="research", on=on, labels={USER_KEY: user} if user else {})


def elastic(name: str, user: str, created: int, pods: int, minimum: int) -> list[kube.KubeObject]:
    made = group(name, minimum, "research", created=MINUTE.format(created))
    made = replace(made, metadata=replace(made.metadata, labels={USER_KEY: user}))
    return [made, *(pod(f"{name}-{i}", group=name) for i in range(pods))]


def bound_by_name(engine: Engine) -> Counter[str]:
    return Counter(name.partition("-")[0] for name in plan(engine))


def held_by(session: Session) -> dict[str, float]:
    """Return the cores that each of two users holds."""
    ledger, axis = session.users, session.state.axis
    assert ledger is not None
    row, cpu = session.state.queues.rows["research"], axis.index("cpu")
    return {user: float(ledger.held(row, user)[cpu]) / 1000 for user in ("ann", "bob")}


def test_nothing_is_counted_without_a_waiting_job_in_a_fair_queue() -> None:
    not_fair = engine_with(node("n"), queue("research"), single("a", "ann"))
    nothing_waits = engine_with(node("n"), fair(), single("a", "ann", on="n"), pod("b"))

    assert session_of(not_fair.cluster).users is None
    assert session_of(nothing_waits.cluster).users is None


def test_extra_pods_of_two_gangs_alternate_between_their_users() -> None:
    engine = engine_with(
        node("n", cpu=6), fair(), *elastic("a", "ann", 0, 9, 1), *elastic("b", "bob", 1, 9, 1)
    )

    assert bound_by_name(engine) == {"a": 3, "b": 3}


def test_the_minimum_of_a_gang_precedes_extra_pods_of_a_user_with_less() -> None:
    """A gang below its minimum is served first, for any user."""
    engine = engine_with(
        node("n", cpu=5),
        fair(),
        single("r", "ann", on="n", cpu=2),
        *elastic("a", "ann", 1, 2, 2),
        *elastic("b", "bob", 0, 9, 1),
    )

    assert bound_by_name(engine) == {"a": 2, "b": 1}


def test_a_changed_label_of_a_bound_pod_moves_its_amounts_to_the_new_user() -> None:
    waiting = [single("a", "ann"), single("b", "bob")]
    engine = engine_with(node("n", cpu=3), fair(), single("r", "ann", on="n", cpu=2), *waiting)
    assert held_by(session_of(engine.cluster)) == {"ann": 2, "bob": 0}

    modify(engine.cluster, single("r", "bob", on="n", cpu=2))

    assert held_by(session_of(engine.cluster)) == {"ann": 0, "bob": 2}
    assert plan(engine) == {"a": "n"}


def test_a_changed_label_of_a_pod_group_applies_from_the_next_cycle() -> None:
    made, *pods = elastic("a", "ann", 0, 2, 1)
    bound = pod("a-2", group="a", on="n", cpu=2)
    engine = engine_with(node("n", cpu=2), fair(), made, *pods, bound)
    assert held_by(session_of(engine.cluster)) == {"ann": 2, "bob": 0}

    modify(engine.cluster, replace(made, metadata=replace(made.metadata, labels={USER_KEY: "bob"})))

    assert held_by(session_of(engine.cluster)) == {"ann": 0, "bob": 2}


def test_amounts_follow_the_plan_and_its_undo() -> None:
    engine = engine_with(
        node("n", cpu=4), fair(), single("r", "bob", on="n"), single("a", "ann"), pod("x")
    )
    session = session_of(engine.cluster)
    tasks, row = session.state.tasks, session.state.nodes.rows["n"]
    by_name = {task.name: task for task in tasks.values()}

    with session.statement() as statement:
        statement.allocate(by_name["a"], row)
        assert held_by(session) == {"ann": 1, "bob": 1}
        statement.evict(by_name["r"], "test")
        assert held_by(session) == {"ann": 1, "bob": 0}
        statement.discard()

    assert held_by(session) == {"ann": 0, "bob": 1}


def test_an_eviction_moves_its_user_forward_in_the_current_work_list() -> None:
    engine = engine_with(
        node("n", cpu=4),
        fair(),
        single("r", "bob", on="n", cpu=2),
        single("s", "ann", on="n", cpu=1),
        *elastic("a", "ann", 0, 1, 1),
        *elastic("b", "bob", 1, 1, 1),
    )
    session = session_of(engine.cluster)
    jobs = [session.state.jobs[JobKey("team", name, True)] for name in ("a", "b")]
    work = iter(WorkList(session, jobs))
    running = next(task for task in session.state.tasks.values() if task.name == "r")

    with session.statement() as statement:
        statement.evict(running, "test")
        assert next(work).key.name == "b"
        statement.discard()


class Failing:
    """A plugin that cannot give a job its place."""

    name = "failing"

    def job_key(self, session: SessionView, job: Job) -> SortKey:
        raise ZeroDivisionError(f"{job.key} at {session.now}")


@pytest.mark.parametrize("made", [fair(), queue("research")], ids=["fair", "by age"])
def test_jobs_that_cannot_be_ordered_are_not_in_the_work_list(made: Queue) -> None:
    engine = engine_with(node("n"), made, single("a", "ann"), single("b", "bob"))
    session = session_of(engine.cluster, Failing())

    assert list(WorkList(session, list(session.state.waiting.values()))) == []
    assert {job.key.name for job in session.failed} == {"a", "b"}


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from(["ann", "bob", ""]), st.booleans(), st.integers(1, 3)),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.integers(0, 30), max_size=20),
)
def test_the_amounts_of_all_users_add_up_to_the_queues_amounts(
    pods: list[tuple[str, bool, int]], steps: list[int]
) -> None:
    made = [
        single(f"p{i}", user, on="n" if runs else "", cpu=cpu)
        for i, (user, runs, cpu) in enumerate(pods)
    ]
    engine = engine_with(node("n", cpu=40), fair(), *made, single("waits", "cid"))
    session = session_of(engine.cluster)
    ledger = session.users
    assert isinstance(ledger, UserLedger)
    row = session.state.queues.rows["research"]
    tasks = sorted(session.state.tasks.values(), key=lambda task: task.name)

    def total() -> list[float]:
        users = ("ann", "bob", "", "cid")
        return list(np.sum([ledger.held(row, user) for user in users], axis=0))

    with session.statement() as statement:
        for step in steps:
            task = tasks[step % len(tasks)]
            try:
                if task.uid in session.state.jobs[task.job].pending:
                    statement.allocate(task, session.state.nodes.rows["n"])
                elif task.status.value == "Running":
                    statement.evict(task, "test")
            except LedgerRefusalError:
                continue
            assert total() == list(session.queue_ledger.allocated[:, row])
        statement.discard()
    assert total() == list(session.queue_ledger.allocated[:, row])
