"""With any content of an object, a plain gang beside it binds, and all sums stay correct."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bindery.kube.objects import watched as kube
from bindery.kube.objects.budgets import DisruptionBudget
from bindery.kube.objects.resources import PODS, Resource
from bindery.kube.watches.decoding import LenientDecoder
from bindery.kube.watches.store import Malformed
from bindery.scheduler.cache.defects import DefectStage
from bindery.scheduler.cache.observers import WATCHED
from bindery.scheduler.cache.task_queues import MOST_UNKNOWN_QUEUES
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.resources import MOST_UNOFFERED
from bindery.scheduler.status.conditions import pending_writes
from bindery.scheduler.status.queues import QueueStatuses
from tests.scheduler.hostile import bodies, encoded
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import (
    NOW,
    add,
    configuration,
    delete,
    engine_with,
    gang,
    group,
    modify,
    node,
    plan,
    pod,
    queue,
    report_of,
    request,
    shared_request,
)
from tests.sizes import examples

KINDS: list[Resource[Any]] = list(
    dict.fromkeys((*WATCHED, *Engine(configuration(), lambda: NOW).watched_resources()))
)


def told(resource: Resource[Any], body: dict[str, Any]) -> list[kube.KubeObject]:
    """Return what a watch makes of `body`."""
    _, found = LenientDecoder(resource).event(encoded(body))
    return [] if isinstance(found, Malformed) else [found]


@pytest.mark.parametrize("resource", KINDS, ids=lambda each: each.plural)
@given(data=st.data())
@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=examples(8))
def test_a_gang_is_planned_beside_an_object_with_any_content(
    resource: Resource[Any], data: st.DataObject
) -> None:
    items = told(resource, data.draw(bodies(resource)))
    engine = engine_with(
        node("n"),
        *items,
        *gang("odd", 1),
        pod("plain", queue="odd"),
        *gang("good", 2, queue="sound"),
        queue("sound"),
    )

    planned = plan(engine)

    assert {"good-0", "good-1"} <= planned.keys()
    list(pending_writes(engine.cluster, engine.report, NOW))
    QueueStatuses(engine.cluster, "").writes(engine.report, NOW)
    assert view(engine.cluster.state) == recount(engine.cluster.state)
    assert engine.cluster.defects.take() == []
    delete(engine.cluster, *items)
    assert view(engine.cluster.state) == recount(engine.cluster.state)


def test_a_pod_with_a_number_beyond_64_bits_is_processed() -> None:
    body = {
        "metadata": {"name": "odd", "namespace": "team", "uid": "uid-odd-pods"},
        "spec": {
            "schedulerName": "bindery",
            "containers": [{"name": "main", "ports": [{"hostPort": 10**30}]}],
        },
    }
    engine = engine_with(node("n"), *told(PODS, body), *gang("good", 2))

    assert {"good-0", "good-1"} <= plan(engine).keys()
    assert engine.cluster.defects.take() == []


# ---- when taking in raises --------------------------------------------------------------------


class Fails:
    """Stands in for a method of the tables: raises at call number `at`, for one pod's resource."""

    def __init__(self, owner: Any, name: str, marked: int, at: int) -> None:
        self.method, self.marked, self.at = getattr(owner, name), marked, at

    def __call__(self, row: int, asked: Any, *rest: Any, **more: Any) -> Any:
        if self.marked in getattr(asked, "amounts", ()):
            self.at -= 1
            if self.at < 0:
                raise MemoryError("no room")
        return self.method(row, asked, *rest, **more)


def marked_pod(**more: Any) -> kube.Pod:
    return pod("odd", cpu="7777m", more={"memory": "1Mi"}, **more)


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("on", ["", "n"], ids=["pending", "bound"])
@pytest.mark.parametrize(
    ("table", "method"), [("queues", "hold"), ("queues", "ask"), ("nodes", "hold")]
)
def test_sums_are_correct_at_whichever_step_the_processing_of_a_pod_fails(
    monkeypatch: pytest.MonkeyPatch, table: str, method: str, on: str, at: int
) -> None:
    engine = engine_with(node("n", 20), pod("held", cpu=2, on="n"), *gang("good", 2))
    owner = getattr(engine.cluster.state, table)
    monkeypatch.setattr(owner, method, Fails(owner, method, 7777, at))

    add(engine.cluster, marked_pod(on=on))
    for priority in (1, 2, 3):
        modify(engine.cluster, marked_pod(on=on, priority=priority))
        assert view(engine.cluster.state) == recount(engine.cluster.state)

    assert {"good-0", "good-1"} <= plan(engine).keys()
    assert view(engine.cluster.state) == recount(engine.cluster.state)
    delete(engine.cluster, marked_pod(on=on))
    assert view(engine.cluster.state) == recount(engine.cluster.state)
    assert not len(engine.cluster.quarantine)


def failing_observer(engine: Engine, resource: Resource[Any], name: str) -> None:
    def observe(change: Any) -> bool:
        if change.object.metadata.name == name:
            raise RecursionError("deep")
        return False

    engine.cluster.observe([((resource,), observe)])


ODD = {
    "namespaces": kube.Namespace(metadata=kube.Meta(name="odd", uid="uid-odd-namespace")),
    "pods": marked_pod(),
    "nodes": node("odd"),
    "queues": queue("odd"),
    "podgroups": group("odd", 1),
    "bindrequests": shared_request("odd", request("odd", {"uid-held": "n"})),
    "poddisruptionbudgets": DisruptionBudget(
        metadata=kube.Meta(name="odd", namespace="team", uid="uid-odd-budget")
    ),
    "priorityclasses": kube.PriorityClass(metadata=kube.Meta(name="odd", uid="uid-odd-class")),
}


@pytest.mark.parametrize("resource", WATCHED, ids=lambda each: each.plural)
@pytest.mark.parametrize("is_first", [True, False], ids=["observed from the start", "later"])
def test_an_object_that_fails_processing_is_skipped_and_reported(
    resource: Resource[Any], *, is_first: bool
) -> None:
    engine = engine_with(node("n"), *gang("good", 2))
    steps: list[Callable[[], None]] = [
        lambda: add(engine.cluster, ODD[resource.plural]),
        lambda: failing_observer(engine, resource, "odd"),
    ]
    for step in reversed(steps) if is_first else steps:
        step()

    assert plan(engine) == {"good-0": "n", "good-1": "n"}
    defect, *_ = engine.cluster.defects.take()
    assert (defect.stage, defect.subject.kind, defect.subject.name) == (
        DefectStage.INTAKE,
        resource.kind,
        "odd",
    )
    assert "RecursionError: deep" in defect.trace
    (problem,) = engine.cluster.problems
    assert (problem.kind, problem.reason) == (resource.kind, "InternalError")
    assert problem.message == "the scheduler cannot process it: RecursionError: deep"


def test_a_pod_that_fails_processing_has_the_error_in_its_condition() -> None:
    engine = engine_with(node("n"))
    failing_observer(engine, PODS, "odd")
    add(engine.cluster, marked_pod())
    plan(engine)

    (write,) = pending_writes(engine.cluster, engine.report, NOW)

    assert (write.meta.name, write.condition.reason) == ("odd", "InternalError")
    assert "cannot process it: RecursionError" in write.condition.message


@pytest.mark.parametrize("kind", ["podgroups", "queues"])
def test_the_gangs_of_an_object_that_fails_processing_wait_for_that_reason(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_with(node("n"))
    owner = engine.cluster if kind == "podgroups" else engine.cluster.state.queues
    name = "_apply_group" if kind == "podgroups" else "put"
    method = getattr(owner, name)

    def fail(item: Any, *rest: Any) -> Any:
        if item.metadata.name == "odd" and not item.unreadable:
            raise RecursionError("deep")
        return method(item, *rest)

    monkeypatch.setattr(owner, name, fail)
    items = gang("odd", 1) if kind == "podgroups" else [queue("odd"), *gang("in", 1, queue="odd")]
    add(engine.cluster, *items)

    assert plan(engine) == {}
    report = report_of(engine, "odd" if kind == "podgroups" else "in")
    assert "cannot process it: RecursionError: deep" in report.message


def test_a_bound_pod_that_becomes_unreadable_holds_its_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = engine_with(node("n", 4), pod("held", cpu=3, on="n"), pod("new", cpu=2))
    method = engine.cluster._tasks.shapes.of

    def fail(item: kube.Pod, *, ours: bool) -> Any:
        if item.metadata.labels.get("odd"):
            raise RecursionError("deep")
        return method(item, ours=ours)

    monkeypatch.setattr(engine.cluster._tasks.shapes, "of", fail)
    modify(engine.cluster, pod("held", cpu=3, on="n", labels={"odd": "yes"}))

    assert plan(engine) == {}
    assert "insufficient cpu" in report_of(engine, "new").message


@pytest.mark.parametrize("digits", [5000, 300])
def test_an_impossibly_large_commit_number_is_not_continued(digits: int) -> None:
    odd = request("odd", {})
    odd = replace(odd, spec=replace(odd.spec, id=f"uid-group-good-{'9' * digits}"))
    engine = engine_with(node("n"), odd, *gang("good", 2))

    (draft,) = engine.cycle()

    assert len(draft.name) < 253
    assert engine.cluster.defects.take() == []


# ---- amounts and names without end ------------------------------------------------------------


def test_pods_with_ever_new_resource_names_do_not_grow_the_columns_without_bound() -> None:
    engine = engine_with(node("n"), *gang("good", 2))
    for number in range(20):
        many = {f"example.com/r{number}-{i}": 1 for i in range(500)}
        add(engine.cluster, pod(f"odd-{number}", more=many))
    late = {"example.com/late": 1}
    add(engine.cluster, node("m", more=late), pod("p", more=late))

    assert plan(engine).keys() == {"good-0", "good-1", "p"}
    assert len(engine.cluster.state.axis) < 2 * MOST_UNOFFERED
    assert "different resources" in report_of(engine, "odd-19").message


def test_pods_with_the_largest_possible_requests_do_not_overflow_sums() -> None:
    engine = engine_with(node("n"), *gang("good", 2))
    for number in range(300):
        amounts = {"memory": "1Pi", "example.com/r": "1000000000000"}
        add(engine.cluster, pod(f"odd-{number}", more=amounts, on="n" if number % 2 else ""))

    plan(engine)

    assert (engine.cluster.state.queues.pending >= 0).all()
    assert (engine.cluster.state.nodes.idle[engine.cluster.state.axis.index("memory")] < 0).all()


def test_unused_queues_take_no_columns() -> None:
    engine = engine_with(
        node("n", 400),
        queue("top", cpu=100),
        queue("q", parent="top"),
        pod("held", cpu=2, on="n", queue="q"),
        pod("waits", queue="never"),
    )
    for number in range(3 * MOST_UNKNOWN_QUEUES):
        odd = pod(f"odd-{number}", queue=f"odd-{number}")
        add(engine.cluster, odd)
        delete(engine.cluster, odd)
    add(engine.cluster, *gang("good", 2, queue="q"))

    assert plan(engine).keys() == {"good-0", "good-1"}

    state = engine.cluster.state
    assert len(state.queues.entries) < MOST_UNKNOWN_QUEUES
    assert {"top", "q", "never"} <= state.queues.rows.keys()
    assert view(state) == recount(state)
    writes = QueueStatuses(engine.cluster, "").writes(engine.report, NOW)
    assert {w.meta.name: w.wanted.allocated["cpu"] for w in writes} == {"top": "4", "q": "4"}
