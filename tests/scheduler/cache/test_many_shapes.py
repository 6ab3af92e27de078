"""Pods that all differ cost little memory and time, and release both when they are deleted."""

import gc
from collections.abc import Iterator

import pytest

from bindery.kube.objects import watched as kube
from bindery.kube.objects.podspec import Affinity, PodAffinity, PodAffinityTerm, Toleration
from bindery.kube.objects.selectors import LabelRequirement, LabelSelector
from bindery.scheduler.cache import shape_costs
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import Uid
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.planning import placement
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.shape_vectors import ShapeVectors
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import (
    add,
    delete,
    engine_with,
    gang,
    group,
    modify,
    node,
    plan,
    pod,
    report_of,
)
from tests.steps import StepClock


def world(*items: kube.KubeObject) -> Engine:
    names = [f"n{i:02}" for i in range(40)]
    return engine_with(*(node(name, 8, labels={"name": name}) for name in names), *items)


def picky(count: int) -> Iterator[kube.Pod]:
    """Yield pods with different selectors that no node matches."""
    for number in range(count):
        yield pod(f"picky{number:03}", "1m", node_selector={f"key{number}": "x"})


def tolerant(count: int) -> Iterator[kube.Pod]:
    for number in range(count):
        yield pod(f"tolerant{number:03}", "1m", tolerations=[Toleration(key=f"key{number}")])


def masks(engine: Engine) -> set[int]:
    """Return the identities of the masks over nodes that are kept between cycles."""
    filters = engine._filters
    kept = [failure.nodes for found in filters._failures.values() for failure in found]
    return {id(mask) for mask in (*kept, *filters._passing.values())}


def test_shapes_with_equal_results_share_the_masks_over_nodes() -> None:
    engine = world(*picky(200))

    assert plan(engine) == {}

    assert len(engine._filters._passing) == 200
    assert len(masks(engine)) <= 3


def test_pods_with_a_selector_for_each_node_are_placed_on_that_node() -> None:
    engine = world(
        *(pod(f"p{i:02}", 1, node_selector={"name": f"n{i:02}"}) for i in range(40)),
        pod("lost", 1, node_selector={"name": "n99"}),
    )

    assert plan(engine) == {f"p{i:02}": f"n{i:02}" for i in range(40)}


@pytest.fixture
def kept_vectors(monkeypatch: pytest.MonkeyPatch) -> int:
    """The vectors of five shapes at most."""
    monkeypatch.setattr(placement, "_MOST_ENTRIES", 0)
    monkeypatch.setattr(placement, "_LEAST_VECTORS", 5)
    return 5


def test_a_cycle_keeps_the_vectors_of_a_bounded_number_of_shapes(kept_vectors: int) -> None:
    engine, seen = world(*tolerant(30), *picky(30)), list[int]()

    def look(session: Session) -> None:
        seen.append(len(session.placement._vectors))

    planned = list(engine.cycle(inspect=look))

    assert sum(len(draft.spec.pods) for draft in planned) == 30
    assert 0 < seen[0] <= kept_vectors


@pytest.mark.usefixtures("kept_vectors")
def test_the_bound_on_vectors_changes_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = plan(world(*tolerant(30), *picky(5), *(pod(f"same{i}", 2) for i in range(20))))
    monkeypatch.setattr(placement, "_LEAST_VECTORS", 1000)

    assert bounded == plan(
        world(*tolerant(30), *picky(5), *(pod(f"same{i}", 2) for i in range(20)))
    )


def test_the_vectors_are_freed_at_the_end_of_the_cycle_without_garbage_collection() -> None:
    engine = world(*picky(20))
    gc.collect()
    gc.disable()
    try:
        plan(engine)
        left = [each for each in gc.get_objects() if isinstance(each, ShapeVectors)]
    finally:
        gc.enable()

    assert left == []


def test_masks_are_deleted_with_their_pods() -> None:
    pods = list(picky(50))
    engine = world(*pods)
    plan(engine)

    delete(engine.cluster, *pods)
    for _ in range(2):
        plan(engine)
    gc.collect()

    assert len(engine._filters._passing) == 0
    assert len(engine._filters._masks) <= 2  # those that describe the nodes themselves


@pytest.fixture
def three_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most three shapes of waiting pods in a namespace."""
    monkeypatch.setattr(shape_costs, "MOST_SHAPES", 3)


@pytest.mark.usefixtures("three_shapes")
def test_pods_above_the_limit_of_shapes_wait_until_other_pods_are_bound() -> None:
    engine = world(*tolerant(5), pod("other", 1, namespace="elsewhere"))

    assert plan(engine).keys() == {"tolerant000", "tolerant001", "tolerant002", "other"}
    late = report_of(engine, "tolerant003")
    assert late.reason == JobReason.TOO_MANY_DIFFERENT_PODS
    assert "which is the maximum: it waits until some of them have a node" in late.message

    bound = [pod(f"tolerant{i:03}", "1m", on="n00") for i in range(3)]
    modify(engine.cluster, *bound)
    assert plan(engine).keys() == {"tolerant003", "tolerant004"}
    assert view(engine.cluster.state) == recount(engine.cluster.state)


@pytest.mark.usefixtures("three_shapes")
def test_pods_above_the_limit_of_shapes_wait_until_other_pods_are_deleted() -> None:
    unfit = list(picky(4))
    engine = world(*unfit, *tolerant(3))

    assert plan(engine) == {}
    delete(engine.cluster, *unfit[1:3])
    assert plan(engine).keys() == {"tolerant000"}
    delete(engine.cluster, unfit[0], unfit[3])
    assert plan(engine).keys() == {"tolerant001", "tolerant002"}


@pytest.mark.usefixtures("three_shapes")
def test_equal_pods_count_as_one_shape_also_after_they_waited_for_room() -> None:
    unfit = list(picky(3))
    same = [pod(f"same{i}", 1) for i in range(5)]
    engine = world(*unfit, *same)

    assert plan(engine) == {}
    delete(engine.cluster, unfit[0])
    assert len(plan(engine)) == 5


@pytest.mark.usefixtures("three_shapes")
def test_a_gang_above_the_limit_of_shapes_of_its_namespace_waits_with_the_reason() -> None:
    pods = [pod(f"p{i}", f"{i + 1}m", group="odd") for i in range(4)]
    engine = world(group("odd", 4), *pods, *gang("plain", 2, namespace="elsewhere"))

    assert not [name for name in plan(engine) if name.startswith("p0")]
    assert report_of(engine, "odd").reason == JobReason.TOO_MANY_DIFFERENT_PODS


@pytest.mark.usefixtures("three_shapes")
def test_a_new_rule_about_labels_cannot_exceed_the_limit_of_shapes() -> None:
    alike = [pod(f"p{i}", "100", labels={"index": str(i)}) for i in range(8)]
    values = [str(i) for i in range(8)]
    expression = LabelRequirement(key="index", operator="In", values=values)
    term = PodAffinityTerm(
        label_selector=LabelSelector(match_expressions=[expression]), topology_key="name"
    )
    ruling = pod(
        "ruling", 1, affinity=Affinity(pod_anti_affinity=PodAffinity(required=[term])), on="n00"
    )
    engine = world(*alike)
    plan(engine)
    add(engine.cluster, ruling)
    plan(engine)

    waiting = [engine.cluster.state.tasks[Uid(f"uid-p{i}")].shape for i in range(8)]
    assert len({shape for shape in waiting if shape.refusal is None}) <= 3
    assert view(engine.cluster.state) == recount(engine.cluster.state)


def test_another_namespaces_pod_is_planned_in_time_beside_3_000_different_pods() -> None:
    engine = world(*(pod(f"odd{i:05}", f"{10_000 + i}m") for i in range(3_000)))
    plan(engine)
    add(engine.cluster, pod("stranger", 1, namespace="elsewhere"))
    clock = StepClock()

    with clock.running():
        stranger = next(iter(engine.cycle()))

    assert [each.pod_name for each in stranger.spec.pods] == ["stranger"]
    assert clock() < 1.0
