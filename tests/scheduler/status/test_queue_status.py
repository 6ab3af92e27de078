"""The status of Queues: allocated, pending and fair share amounts of their gangs."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bindery.api.names import GPU_MODEL_LABEL, NODE_POOL_LABEL
from bindery.api.quantity import canonical
from bindery.kube.objects import watched as kube
from bindery.kube.objects.queues import GangCounts, Queue, QueueResource, QueueSpec, QueueStatus
from bindery.scheduler.engine import Engine
from bindery.scheduler.insight.shares import cluster_shares
from bindery.scheduler.status.queues import QueueStatuses, QueueWrite
from tests.scheduler.schedulerworld import (
    GPU,
    NOW,
    add,
    delete,
    engine_with,
    gang,
    modify,
    node,
    plan,
    pod,
)


def queue(name: str, parent: str | None = None, pool: str = "", **rules: Any) -> Queue:
    """Return a queue; `rules`: resource -> (quota, weight), `models`: the same by model."""
    models: Mapping[str, tuple[Any, float]] = rules.pop("models", {})
    return Queue(
        metadata=kube.Meta(
            name=name, uid=f"uid-{name}", labels={NODE_POOL_LABEL: pool} if pool else {}
        ),
        spec=QueueSpec(
            parent=parent,
            resources={key: _rule(*rule) for key, rule in rules.items()},
            models={key: _rule(*rule) for key, rule in models.items()},
        ),
    )


def _rule(quota: Any, weight: float) -> QueueResource:
    return QueueResource(quota=quota, over_quota_weight=weight)


def writes_of(engine: Engine, pool: str = "") -> dict[str, QueueWrite]:
    plan(engine)
    writes = QueueStatuses(engine.cluster, pool).writes(engine.report, NOW)
    return {write.meta.name: write for write in writes}


def status_of(engine: Engine, name: str) -> QueueStatus:
    return writes_of(engine)[name].wanted


def show(engine: Engine, *queues: Queue) -> None:
    """Apply the pending status writes to `queues`."""
    writes = writes_of(engine)
    for item in queues:
        if item.metadata.name in writes:
            status = writes[item.metadata.name].wanted
            modify(engine.cluster, structs.replace(item, status=status))


def test_the_status_has_all_resources_that_gangs_hold_and_request() -> None:
    team = queue("team", gpu=(2, 1))
    runs = gang("runs", 2, queue="team", cpu="1500m", gpu=1, more={"memory": "3Gi"})
    waits = gang("waits", 1, queue="team", gpu=4)
    engine = engine_with(node("n", gpu=3), team, *runs, *waits)

    status = status_of(engine, "team")

    assert status.allocated == {"cpu": "3", "memory": "6Gi", "gpu": "2"}
    assert status.pending == {"cpu": "1", "memory": "0", "gpu": "4"}
    assert status.requested == {"cpu": "4", "memory": "6Gi", "gpu": "6"}
    assert status.fair_share == {"cpu": "4", "memory": "6Gi", "gpu": "3"}
    assert status.gangs == GangCounts(running=1, pending=1)


def test_bindery_queues_counts_the_gangs_that_the_status_of_the_queue_counts() -> None:
    """Gangs that have ended or have no pods neither run nor wait, nor do pods without PodGroup."""
    team = queue("team")
    ended = gang("ended", 2, queue="team", on="n", phase="Succeeded")
    engine = engine_with(
        node("n"),
        team,
        *gang("runs", 2, queue="team", on="n"),
        *gang("waits", 2, queue="team", cpu=99),
        *ended,
        *gang("empty", 0, minimum=2, queue="team"),
        pod("orphan", group="nosuch"),
    )

    counted = status_of(engine, "team").gangs
    with engine.session() as session:
        shown = {each.name: each for each in cluster_shares(session).queues}["team"]

    assert counted == GangCounts(running=1, pending=1)
    assert (shown.running, shown.waiting) == (counted.running, counted.pending)


def test_the_status_has_resources_with_a_quota_or_limit_even_if_unused() -> None:
    status = status_of(engine_with(node("n", gpu=3), queue("team", gpu=(2, 1))), "team")

    assert status.allocated == status.pending == status.fair_share == {"gpu": "0"}
    assert status.gangs == GangCounts()


def test_a_queue_counts_all_queues_below_it() -> None:
    queues = [
        queue("org", gpu=(4, 1)),
        queue("a", "org", gpu=(3, 1)),
        queue("b", "org", gpu=(1, 0)),
    ]
    gangs = [*gang("one", 1, queue="a", gpu=1), *gang("two", 1, queue="b", gpu=1)]
    engine = engine_with(node("n", gpu=4), *queues, *gangs, *gang("big", 1, queue="a", gpu=9))

    writes = writes_of(engine)

    assert {name: write.wanted.allocated["gpu"] for name, write in writes.items()} == {
        "org": "2",
        "a": "1",
        "b": "1",
    }
    assert {name: write.wanted.gangs for name, write in writes.items()} == {
        "org": GangCounts(running=2, pending=1),
        "a": GangCounts(running=1, pending=1),
        "b": GangCounts(running=1, pending=0),
    }
    assert writes["org"].wanted.fair_share["gpu"] == "4"


def test_the_status_has_gpu_models_if_the_queue_has_rules_for_them() -> None:
    new, old = ({GPU_MODEL_LABEL: model} for model in ("A100", "T4"))
    nodes = [node("new", gpu=2, labels=new), node("old", gpu=2, labels=old)]
    ruled = queue("ruled", gpu=(4, 1), models={"A100": (1, 0)})
    bound = [
        pod("a", 0, 1, queue="ruled", on="new"),
        pod("b", 0, 1, queue="ruled", on="old"),
        pod("c", 0, 1, queue="free", on="new"),
    ]
    engine = engine_with(*nodes, ruled, queue("free", gpu=(0, 1)), *bound)

    writes = writes_of(engine)

    assert writes["ruled"].wanted.allocated == {"gpu": "2", "gpu-model/A100": "1"}
    assert writes["ruled"].wanted.fair_share == {"gpu": "2", "gpu-model/A100": "1"}
    assert writes["free"].wanted.allocated == {"gpu": "1"}


@pytest.mark.parametrize(
    ("members", "counts"),
    [
        (gang("g", 2, queue="q"), GangCounts(running=1)),
        (gang("g", 2, queue="q", cpu=99), GangCounts(pending=1)),
        (gang("g", 1, 2, queue="q"), GangCounts(pending=1)),
        (gang("g", 2, queue="q", gated=True), GangCounts()),
        (gang("g", 2, queue="q", on="n", phase="Succeeded"), GangCounts()),
        ([pod("single", queue="q")], GangCounts(running=1)),
        (gang("g", 3, 2, queue="q", cpu=4), GangCounts(running=1)),
        (gang("g", 2, 0, queue="q", cpu=99), GangCounts(pending=1)),
        (gang("g", 3, 0, queue="q", cpu=4), GangCounts(running=1)),
    ],
    ids=[
        *("runs", "waits", "lacks pods", "gated", "finished", "one pod", "extras wait"),
        *("needs none and has none", "needs none and has some"),
    ],
)
def test_gangs_are_counted_by_whether_they_have_their_minimum(
    members: list[kube.KubeObject], counts: GangCounts
) -> None:
    assert status_of(engine_with(node("n"), queue("q"), *members), "q").gangs == counts


def test_nothing_is_written_while_nothing_changes() -> None:
    org, team = queue("org", gpu=(4, 1)), queue("team", "org", gpu=(2, 1))
    engine = engine_with(node("n", gpu=2), org, team, *gang("g", 2, queue="team", gpu=1))
    show(engine, org, team)

    assert [writes_of(engine) for _ in range(5)] == [{}] * 5


def test_a_change_below_is_written_to_the_queues_above_and_to_no_others() -> None:
    queues = [queue("org"), queue("team", "org"), queue("others")]
    engine = engine_with(node("n"), *queues)
    show(engine, *queues)
    add(engine.cluster, *gang("g", 1, queue="team"))

    writes = writes_of(engine)

    assert set(writes) == {"org", "team"}
    assert not any(write.is_urgent for write in writes.values())


def test_the_status_drops_a_resource_that_is_no_longer_used() -> None:
    team = queue("team")
    runs = pod("a", queue="team", on="n")
    engine = engine_with(node("n"), team, runs)
    show(engine, team)
    delete(engine.cluster, runs)

    assert status_of(engine, "team").allocated == {}


def test_amounts_are_written_only_by_the_scheduler_of_the_queues_pool() -> None:
    engine = engine_with(node("n"), queue("ours"), queue("theirs", pool="other"))
    add(engine.cluster, *gang("g", 1, queue="ours"), *gang("h", 1, queue="theirs"))

    writes = writes_of(engine)

    assert writes["ours"].wanted.allocated == {"cpu": "1"}
    assert writes["theirs"].wanted.allocated == {}
    assert [c.type for c in writes["theirs"].wanted.conditions or ()] == ["Ready"]


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        (GPU, 500, "500m"),
        ("memory", 64 * 2**30, "64Gi"),
        ("memory", 1_500_000_000, "1500000000"),
        ("memory", 0, "0"),
        ("pods", 2048, "2048"),
    ],
)
def test_amounts_are_written_exactly(resource: str, amount: int, text: str) -> None:
    assert canonical(amount, resource) == text


NAMES = ("org", "a", "b", "c")
STEPS = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(NAMES), st.integers(1, 3)),
    st.tuples(st.just("finish"), st.integers(0, 20), st.none()),
    st.tuples(st.just("hang"), st.sampled_from(NAMES), st.sampled_from((None, *NAMES))),
    st.tuples(st.just("remove"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("show"), st.none(), st.none()),
)


def do(engine: Engine, step: tuple[str, Any, Any], index: int) -> None:
    kind, what, how = step
    if kind == "submit":
        add(engine.cluster, *gang(f"g{index}", how, queue=what, gpu=1))
    elif kind == "finish" and engine.cluster.pods:
        pods = list(engine.cluster.pods.values())
        delete(engine.cluster, pods[what % len(pods)])
    elif kind == "hang":
        modify(engine.cluster, queue(what, how, gpu=(index % 5, 1)))
    elif kind == "remove" and what in engine.cluster.queues:
        delete(engine.cluster, engine.cluster.queues[what])
    elif kind == "show":
        show(engine, *list(engine.cluster.queues.values()))


def without_gangs(writes: list[QueueWrite]) -> dict[str, QueueStatus]:
    return {w.meta.name: structs.replace(w.wanted, gangs=GangCounts()) for w in writes}


@given(st.lists(STEPS, max_size=25))
def test_cached_statuses_equal_new_ones(steps: list[tuple[str, Any, Any]]) -> None:
    engine = engine_with(node("n", gpu=6), *(queue(name, gpu=(2, 1)) for name in NAMES))
    kept = QueueStatuses(engine.cluster, "")
    for index, step in enumerate(steps):
        do(engine, step, index)
        plan(engine)
        report = engine.report
        fresh = QueueStatuses(engine.cluster, "").writes(report, NOW)
        assert without_gangs(kept.writes(report, NOW)) == without_gangs(fresh)


def test_gangs_are_recounted_in_time_even_if_amounts_are_unchanged() -> None:
    engine = engine_with(node("n"), queue("q"), *gang("pair", 2, queue="q", on="n"))
    statuses = QueueStatuses(engine.cluster, "")
    plan(engine)

    def running() -> int:
        (write,) = statuses.writes(engine.report, NOW)
        return write.wanted.gangs.running

    assert running() == 1
    delete(engine.cluster, *gang("pair", 2, queue="q", on="n"))
    add(engine.cluster, *(pod(name, queue="q", on="n") for name in ("a", "b")))

    assert 2 in [running() for _ in range(60)]
