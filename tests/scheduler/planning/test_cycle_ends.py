"""A cycle leaves nothing behind, whether it fails or its caller stops reading."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from bindery.scheduler.cache.defects import DefectStage
from bindery.scheduler.engine import Engine
from bindery.scheduler.ledgers.base import LedgerRefusalError, Operation
from bindery.scheduler.model.jobs import TaskStatus
from bindery.scheduler.plugins.registry import PluginSet, load
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import (
    add,
    configuration,
    engine_with,
    gang,
    node,
    places,
    plan,
    pod,
    queue,
    report_of,
)

LEAVING = "2025-06-15T15:06:41Z"


def crowded_engine(**bind_request: int) -> Engine:
    """Return an engine with a gang of parts, singles, a promised gang and one that fits nowhere."""
    return engine_with(
        node("n1", 8),
        node("n2", 4),
        pod("old", cpu=4, on="n2", deleting=LEAVING),
        *gang("a", 5),
        queue("beside"),
        *(pod(f"b-{i}", queue="beside") for i in range(3)),
        *gang("c", 2, cpu=2),
        *gang("d", 9),
        bind_request={"max_pods": 2, "merge_above": 1, **bind_request},
    )


def contested_engine(**bind_request: int) -> Engine:
    """Return an engine whose plan evicts a pod, moves another, and places others beside."""
    return engine_with(
        node("n1", 4),
        node("n2", 5),
        node("n3", 2, labels={"for": "b"}),
        pod("low", cpu=1, on="n1"),
        pod("lowest", cpu=3, on="n2"),
        *(pod(f"b-{i}", node_selector={"for": "b"}) for i in range(2)),
        *gang("high", 2, cpu=4, priority=60),
        bind_request={"max_pods": 2, "merge_above": 1, **bind_request},
    )


ENGINES = {"crowded": crowded_engine, "contested": contested_engine}


def with_plugins(engine: Engine, *plugins: Any) -> Engine:
    """Let `engine` plan with `plugins` beside the built-in ones."""
    built_in = load(configuration().plugins)
    engine._plugins = PluginSet([*built_in.plugins, *plugins], built_in.seconds)
    return engine


def assert_nothing_is_left(engine: Engine, given: set[str]) -> None:
    """Check that just the pods `given` out count as Binding and that nothing is allocated."""
    state = engine.cluster.state
    assert view(state) == recount(state)
    assert not state.nodes.pipelined.any()
    statuses = {task.name: task.status for task in state.tasks.values()}
    assert {name for name, s in statuses.items() if s is TaskStatus.BINDING} == given
    assert set(statuses.values()).isdisjoint({TaskStatus.ALLOCATED, TaskStatus.PIPELINED})
    assert {name for name, s in statuses.items() if s is TaskStatus.RELEASING} <= {"old"}
    assert not list(engine.cluster.promises.jobs)


def take_evictions_back(engine: Engine) -> None:
    """Undo the evictions of the last whole cycle, as if the API server had refused them."""
    for eviction in engine.report.evictions:
        engine.cluster.not_evicted(eviction.task.uid)
        engine.cluster.promises.forget(eviction.preemptor)


def test_the_contested_plan_evicts_and_moves() -> None:
    engine = contested_engine()

    assert plan(engine)
    assert {(e.task.name, bool(e.moves_to)) for e in engine.report.evictions} == {
        ("low", True),
        ("lowest", False),
    }


@pytest.mark.parametrize("world", ENGINES)
@pytest.mark.parametrize("max_pods", [1, 2, 500])
@pytest.mark.parametrize("read", range(9))
def test_a_cycle_that_is_not_read_to_its_end_leaves_no_pod_stuck(
    read: int, max_pods: int, world: str
) -> None:
    engine, whole = (ENGINES[world](max_pods=max_pods) for _ in range(2))
    everything = plan(whole)
    cycle = engine.cycle()
    drafts = list(itertools.islice(cycle, read))

    cycle.close()

    take_evictions_back(engine)
    assert_nothing_is_left(engine, set(places(drafts)))
    for draft in drafts:
        engine.refused(draft)
    assert plan(engine) == everything


class Failing:
    """A plugin that fails at one extension point, at its call number `at`."""

    name = "failing"

    def __init__(self, at: int) -> None:
        self.at = at

    def fail(self, answer: Any) -> Any:
        self.at -= 1
        if self.at < 0:
            raise ZeroDivisionError
        return answer


def failing(point: str, answer: Any, at: int) -> Failing:
    """Return a plugin whose method `point` answers, and fails at its call number `at`."""
    plugin = Failing(at)
    setattr(plugin, point, lambda *_: plugin.fail(answer))
    return plugin


POINTS: dict[str, Any] = {
    "queue_key": (),
    "job_key": (),
    "pod_key": (),
    "node_failures": (),
    "job_node_failures": (),
    "invalid": None,
    "over_capacity": None,
    "is_ready": True,
    "is_pipelined": True,
    "is_starving": True,
    "may_evict": True,
    "gang_domains": None,
    "bind_data": None,
    "annotations": {},
    "explain_wait": None,
}


CALLED = {
    "crowded": POINTS.keys() - {"may_evict"},
    "contested": POINTS.keys() - {"queue_key"},
}
"""The points that a cycle over each world comes to at least once; `contested` has one
queue, whose turn it always is."""


@pytest.mark.parametrize("world", ENGINES)
@pytest.mark.parametrize("at", [0, 1, 4])
@pytest.mark.parametrize("point", POINTS)
def test_an_error_of_a_plugin_fails_only_the_jobs_it_was_called_for(
    point: str, at: int, world: str
) -> None:
    engine, everything = ENGINES[world](), plan(ENGINES[world]())
    with_plugins(engine, failing(point, POINTS[point], at))

    drafts = list(engine.cycle())

    failed = {(d.stage, d.text) for d in engine.cluster.defects.take()}
    stage = DefectStage.REPORT if point == "explain_wait" else DefectStage.PLANNING
    assert failed == {(stage, "ZeroDivisionError: ")} or at > 0 or point not in CALLED[world]
    take_evictions_back(engine)
    assert_nothing_is_left(engine, set(places(drafts)))
    for draft in drafts:
        engine.refused(draft)
    assert plan(with_plugins(engine)) == everything


def failing_for(point: str, answer: Any, name: str) -> Any:
    """Return a plugin whose method `point` fails where it is asked about the job or pod `name`."""

    def ask(*asked: Any) -> Any:
        if any(name in str(getattr(each, "key", getattr(each, "name", ""))) for each in asked):
            raise RecursionError("deep")
        return answer

    plugin = type("FailingFor", (), {"name": "failing"})()
    setattr(plugin, point, ask)
    return plugin


@pytest.mark.parametrize(
    ("point", "world"),
    [
        *itertools.product(["job_key", "invalid", "over_capacity", "bind_data"], [[pod("bad")]]),
        *itertools.product(
            ["job_key", "pod_key", "invalid", "over_capacity", "bind_data"],
            [gang("bad", 2, cpu=1)],
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else f"{len(each)} objects",
)
def test_a_job_waits_if_a_plugin_fails_for_it_and_all_others_are_planned(
    point: str, world: list[Any]
) -> None:
    engine = engine_with(node("n1", 20), *gang("a", 3), *world, *(pod(f"p{i}") for i in range(3)))
    with_plugins(engine, failing_for(point, POINTS[point], "bad"))

    planned = plan(engine)

    assert planned.keys() == {"a-0", "a-1", "a-2", "p0", "p1", "p2"}
    report = report_of(engine, "bad")
    assert (report.reason, report.message) == (
        "InternalError",
        "planning it has failed: RecursionError: deep",
    )
    assert_nothing_is_left(engine, set(planned))
    (first, *again) = engine.cluster.defects.take()
    assert (first.subject.name, "test_cycle_ends" in first.trace) == ("bad", True)
    assert not any(each.trace for each in again)
    assert plan(with_plugins(engine)).keys() == {
        task.name for task in engine.cluster.state.tasks.values() if task.name.startswith("bad")
    }


def test_a_running_job_for_which_a_plugin_fails_is_no_victim_and_others_are() -> None:
    engine = engine_with(
        node("n1", 4),
        pod("bad", cpu=2, on="n1"),
        pod("low", cpu=2, on="n1"),
        *gang("high", 1, cpu=2, priority=60),
    )
    with_plugins(engine, failing_for("job_key", (), "bad"))

    assert plan(engine) == {}
    assert [eviction.task.name for eviction in engine.report.evictions] == ["low"]


class Refusing:
    """A plugin whose ledger refuses operations unless `accepts` returns True."""

    name = "refusing"

    def __init__(self, accepts: Callable[[Operation], bool]) -> None:
        self.accepts = accepts

    def ledger(self, session: object, state: object) -> "Refusing":  # noqa: ARG002
        return self

    def apply(self, operation: Operation) -> None:
        if not self.accepts(operation):
            raise LedgerRefusalError("no licence left there")

    def revert(self, operation: Operation) -> None:
        pass


def test_a_pod_is_placed_on_the_next_node_when_a_ledger_refuses_one() -> None:
    engine = engine_with(node("n1", 2), node("n2", 8), node("n3", 8), *gang("g", 3))
    rows = engine.cluster.state.nodes.rows
    with_plugins(engine, Refusing(lambda operation: operation.row == rows["n3"]))

    assert plan(engine) == {f"g-{i}": "n3" for i in range(3)}


def test_a_gang_refused_by_a_ledger_waits_with_the_reason_and_others_are_planned() -> None:
    engine = engine_with(node("n1"), node("n2"), *gang("g", 3), pod("p"))
    with_plugins(engine, Refusing(lambda operation: operation.task.name in ("g-0", "p")))

    assert plan(engine) == {"p": "n1"}
    report = report_of(engine, "g")
    assert report.reason == "Unschedulable"
    assert report.message == (
        "1 of 3 pods fit; for the next one 0/2 nodes are available: 2 no licence left there"
    )


def test_a_ledger_that_refuses_promises_leaves_the_gang_waiting() -> None:
    engine = engine_with(
        node("n1", 1), node("n2", 1), pod("old", on="n2", deleting=LEAVING), *gang("g", 2)
    )
    with_plugins(engine, Refusing(lambda operation: operation.kind.value == "allocate"))

    assert plan(engine) == {}
    assert report_of(engine, "g").reason == "Unschedulable"
    assert_nothing_is_left(engine, set())


class Forgetful(Refusing):
    """A plugin whose ledger takes back `most` operations for the job `bad`, and then fails."""

    def __init__(self, most: int) -> None:
        super().__init__(lambda _: True)
        self.left = most

    def revert(self, operation: Operation) -> None:
        if operation.task.job.name == "bad":
            self.left -= 1
            if self.left < 0:
                raise ZeroDivisionError


def test_a_promise_that_a_ledger_cannot_undo_fails_only_its_job() -> None:
    engine = engine_with(
        node("n1", 2), pod("old", cpu=2, on="n1", deleting=LEAVING), *gang("bad", 1), *gang("a", 1)
    )
    with_plugins(engine, Forgetful(1))  # the place that was found before it was promised

    assert plan(engine) == {}
    assert {report_of(engine, name).reason for name in ("a", "bad")} == {"WaitsForRelease"}
    assert_nothing_is_left(engine, set())
    assert {each.subject.name for each in engine.cluster.defects.take()} == {"bad"}


def test_victims_that_a_ledger_cannot_restore_fail_only_their_job() -> None:
    engine = engine_with(
        node("n1", 4),
        *gang("bad", 2, minimum=1, on="n1"),
        pod("low", cpu=2, on="n1"),
        *gang("high", 1, cpu=2, priority=60),
    )
    with_plugins(engine, Forgetful(0))

    assert plan(engine) == {}
    assert [eviction.task.name for eviction in engine.report.evictions] == ["low"]
    assert {each.subject.name for each in engine.cluster.defects.take()} == {"bad"}


def test_a_gang_holds_no_room_if_a_plugin_rejects_its_promise() -> None:
    engine = engine_with(
        node("n1", 1), pod("old", on="n1", deleting=LEAVING), *gang("g", 1), pod("z")
    )
    plugin = type("No", (), {"name": "no", "is_pipelined": lambda *_: False})()
    with_plugins(engine, plugin)

    assert plan(engine) == {}
    assert {pod.state for pod in report_of(engine, "g").pods.values()} == {"Pending"}


def test_a_job_reports_that_a_plugin_leaves_it_no_nodes() -> None:
    engine = engine_with(node("n1"), pod("p"))
    with_plugins(engine, type("No", (), {"name": "no", "gang_domains": lambda *_: []})())

    assert plan(engine) == {}
    assert report_of(engine, "p").message == "a plugin leaves it no nodes to try"


def test_a_report_is_replaced_only_by_the_report_of_a_whole_cycle() -> None:
    engine = engine_with(node("n"), *gang("g", 9))
    assert plan(engine) == {}
    before = engine.report
    add(engine.cluster, pod("p"))

    cycle = engine.cycle()
    next(cycle)
    cycle.close()

    assert engine.report is before
