"""Rules of one tenant about other pods cost other tenants little, and end with their pods."""

import gc
from collections.abc import Iterator

import pytest

from bindery.kube.objects import watched as kube
from bindery.kube.objects.podspec import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
)
from bindery.kube.objects.selectors import LabelSelector
from bindery.scheduler.cache import rule_costs
from bindery.scheduler.cache.rule_costs import IGNORED, MOST_OF_NAMESPACE, MOST_OF_POD
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.pod_rules import Term
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.status.conditions import pending_writes
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import (
    NAMESPACE,
    NOW,
    add,
    delete,
    engine_with,
    gang,
    modify,
    node,
    plan,
    pod,
    report_of,
)
from tests.steps import StepClock

HOST = "kubernetes.io/hostname"


def terms(owner: str, count: int) -> Iterator[PodAffinityTerm]:
    for number in range(count):
        labels = {"apart": f"{owner}-{number}"}
        yield PodAffinityTerm(label_selector=LabelSelector(match_labels=labels), topology_key=HOST)


def keeping_apart(
    name: str, count: int, *, namespace: str = NAMESPACE, on: str = "", gated: bool = False
) -> kube.Pod:
    """Return a pod with `count` different terms of anti-affinity."""
    required = list(terms(name, count))
    return pod(
        name,
        "1m",
        namespace=namespace,
        on=on,
        gated=gated,
        affinity=Affinity(pod_anti_affinity=PodAffinity(required=required)),
    )


def world(*items: kube.KubeObject) -> Engine:
    return engine_with(*(node(f"n{i}", 8, labels={HOST: f"n{i}"}) for i in range(10)), *items)


def messages(engine: Engine) -> dict[str, str]:
    plan(engine)
    return {key.name: report.message for key, report in engine.report.jobs.items()}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of 20 sets a namespace, and 80 with bound pods."""
    monkeypatch.setattr(rule_costs, "MOST_OF_NAMESPACE", 20)
    monkeypatch.setattr(rule_costs, "MOST_WITH_BOUND", 80)


def test_a_pod_with_too_many_terms_waits_with_the_reason() -> None:
    engine = world(keeping_apart("odd", MOST_OF_POD + 1), keeping_apart("even", MOST_OF_POD))

    assert plan(engine).keys() == {"even"}

    report = report_of(engine, "odd")
    assert report.reason == JobReason.TOO_MANY_DIFFERENT_PODS
    assert f"more than {MOST_OF_POD} terms" in report.message
    (write,) = (
        w for w in pending_writes(engine.cluster, engine.report, NOW) if w.meta.name == "odd"
    )
    assert "terms of pod affinity" in write.condition.message


@pytest.mark.usefixtures("small")
def test_pods_beyond_the_bound_of_their_namespace_wait_until_there_is_room() -> None:
    pods = [keeping_apart(f"p{i}", 8) for i in range(4)]
    engine = world(*pods, keeping_apart("other", 8, namespace="elsewhere"))

    assert plan(engine).keys() == {"p0", "p1", "other"}
    assert "maximum: it waits until some of them go" in report_of(engine, "p2").message

    delete(engine.cluster, pods[0])
    assert plan(engine).keys() == {"p2"}
    delete(engine.cluster, pods[1], pods[2])
    assert plan(engine).keys() == {"p3"}
    assert view(engine.cluster.state) == recount(engine.cluster.state)


@pytest.mark.usefixtures("small")
def test_equal_rules_count_once() -> None:
    same = LabelSelector(match_labels={"app": "one"})
    spread = [
        TopologySpreadConstraint(
            label_selector=same, topology_key=HOST, max_skew=1, when_unsatisfiable="DoNotSchedule"
        )
    ]
    engine = world(*(pod(f"p{i}", topology_spread_constraints=spread) for i in range(30)))

    assert len(plan(engine)) == 30


@pytest.mark.usefixtures("small")
def test_the_rules_of_bound_pods_apply_above_the_limit_for_waiting_pods() -> None:
    engine = world(
        *(keeping_apart(f"runs{i}", 8, on=f"n{i % 10}") for i in range(9)),
        *(pod(f"new{i}", labels={"apart": f"runs{i}-0"}) for i in range(9)),
        keeping_apart("waits", 1),
    )

    planned = plan(engine)

    assert "waits" not in planned
    assert all(planned[f"new{i}"] != f"n{i}" for i in range(9))


@pytest.mark.usefixtures("small")
def test_one_event_reports_that_the_rules_of_bound_pods_are_not_applied() -> None:
    engine = world(*(keeping_apart(f"runs{i}", 8, on=f"n{i}") for i in range(10)))
    beyond = [keeping_apart(f"late{i}", 8, on=f"n{i}") for i in range(3)]

    def told() -> list[tuple[str, str]]:
        found = [(each.meta.name, each.reason) for each in engine.cluster.problems]
        engine.cluster.problems.clear()
        return found

    assert told() == []
    add(engine.cluster, *beyond)
    modify(engine.cluster, *beyond)
    assert told() == [("late0", IGNORED)]

    delete(engine.cluster, *beyond)
    add(engine.cluster, keeping_apart("again", 8, on="n1"))
    assert told() == [("again", IGNORED)]


def test_many_pods_with_rules_are_deleted_in_time() -> None:
    engine = world()
    pods = [keeping_apart(f"odd{i:03}", 60) for i in range(600)]
    add(engine.cluster, *pods)
    clock = StepClock()

    with clock.running():
        delete(engine.cluster, *pods)

    assert clock() < 3.0
    assert not engine.cluster._costs._in_namespace


def test_another_namespaces_pod_is_planned_in_time_beside_600_pods_with_60_terms() -> None:
    engine = world()
    add(engine.cluster, *(keeping_apart(f"odd{i:03}", 60) for i in range(600)))
    add(engine.cluster, *gang("stranger", 2))
    clock = StepClock()

    with clock.running():
        planned = plan(engine)

    assert {"stranger-0", "stranger-1"} <= planned.keys()
    assert len(planned) == 2 + MOST_OF_NAMESPACE // 60
    assert clock() < 2.0


def living(kind: type) -> int:
    gc.collect()
    return sum(isinstance(each, kind) for each in gc.get_objects())


def test_memory_is_released_when_the_pods_are_deleted() -> None:
    engine = world()
    plan(engine)
    before = living(Term), living(Shape)
    pods = [
        *(keeping_apart(f"odd{i}", 20, gated=True) for i in range(10)),
        *(pod(f"own{i}", gated=True, tolerations=[Toleration(key=f"k{i}")]) for i in range(10)),
    ]
    add(engine.cluster, *pods)
    plan(engine)
    assert living(Term) > before[0]
    assert living(Shape) >= before[1] + 20

    for _ in range(2):
        delete(engine.cluster, *pods)
        plan(engine)

    engine.report = type(engine.report)()
    assert (living(Term), living(Shape)) == before
    assert not engine.cluster._costs.problems
    assert not engine.cluster._costs._in_namespace
