"""Disruption budgets in the cache: the pods they cover and block, and when to retry."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from bindery.kube.objects.budgets import BudgetSpec, BudgetStatus, DisruptionBudget
from bindery.kube.objects.selectors import LabelRequirement, LabelSelector
from bindery.kube.objects.watched import KubeObject, Meta
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import Task, Uid
from bindery.scheduler.planning.reports import RefusedPlan
from tests.scheduler.schedulerworld import (
    NAMESPACE,
    NOW,
    add,
    delete,
    engine_with,
    modify,
    node,
    pod,
    queue,
)

GUARDED = {"app": "guarded"}


def budget(
    name: str = "budget", allowed: int = 0, generation: int = 1, namespace: str = NAMESPACE
) -> DisruptionBudget:
    return DisruptionBudget(
        metadata=Meta(name=name, namespace=namespace, uid=f"uid-{name}"),
        spec=BudgetSpec(selector=LabelSelector(match_labels=GUARDED)),
        status=BudgetStatus(disruptions_allowed=allowed, observed_generation=generation),
    )


def contested() -> Engine:
    """Return an engine in which `poor` can only run where `rich` does, which is guarded."""
    engine = engine_with(
        queue("rich", quotas={"cpu": 0}),
        queue("poor", quotas={"cpu": 1}),
        node("n", 1),
        pod("rich", queue="rich", on="n", labels=GUARDED),
        pod("poor", queue="poor"),
    )
    add(engine.cluster, budget())
    return engine


def refuse(engine: Engine, easings: int | None = None) -> None:
    """Let the API server refuse what the last cycle evicts, asked for at `easings` of budgets."""
    [eviction] = engine.report.evictions
    problem = "it would violate the pod's disruption budget"
    plan = RefusedPlan(eviction, (eviction,), problem, is_begun=False, budget_easings=easings)
    engine.dropped(plan)


def evicted(engine: Engine) -> list[str]:
    """Plan once; return the pods that the cycle evicts."""
    assert not list(engine.cycle())
    return [eviction.task.name for eviction in engine.report.evictions]


def task(cluster: Cluster, name: str) -> Task:
    return cluster.state.tasks[Uid(f"uid-{name}")]


def test_a_budget_counts_the_pods_of_its_namespace_that_its_selector_matches() -> None:
    engine = engine_with(
        node("n", 9),
        pod("guarded", on="n", labels=GUARDED),
        pod("other", on="n"),
        pod("elsewhere", on="n", labels=GUARDED, namespace="elsewhere"),
    )
    cluster = engine.cluster
    expression = LabelRequirement(key="app", operator="Exists")
    second = replace(
        budget("a-second", allowed=1),
        spec=BudgetSpec(selector=LabelSelector(match_expressions=[expression])),
    )
    add(cluster, budget("z"), second)

    found = {
        name: [each.metadata.name for each in cluster.budgets.of(task(cluster, name))]
        for name in ("guarded", "other", "elsewhere")
    }

    assert found == {"guarded": ["a-second", "z"], "other": [], "elsewhere": []}
    blocking = cluster.budgets.blocking(task(cluster, "guarded"))
    assert blocking is not None
    assert blocking.metadata.name == "z"
    assert cluster.budgets.blocking(task(cluster, "other")) is None


@pytest.mark.parametrize(
    "change",
    [budget(allowed=1), budget(generation=2), replace(budget(), spec=BudgetSpec())],
    ids=["allows more", "is counted", "covers other pods"],
)
def test_a_refused_eviction_is_retried_when_its_budget_changes(
    change: DisruptionBudget,
) -> None:
    engine = contested()
    assert evicted(engine) == ["rich"]
    refuse(engine)
    assert evicted(engine) == []

    modify(engine.cluster, change)

    assert evicted(engine) == ["rich"]


def test_a_refused_eviction_is_retried_when_its_budget_is_deleted() -> None:
    engine = contested()
    assert evicted(engine) == ["rich"]
    refuse(engine)

    delete(engine.cluster, budget())

    assert evicted(engine) == ["rich"]


def _ease_for_a_moment(cluster: Cluster) -> None:
    modify(cluster, budget(allowed=1))
    modify(cluster, budget(allowed=0))


EASED: list[Callable[[Cluster], object]] = [
    lambda cluster: modify(cluster, budget(allowed=1)),
    lambda cluster: delete(cluster, budget()),
    _ease_for_a_moment,
]


@pytest.mark.parametrize("ease", EASED, ids=["allows more", "is deleted", "for a moment"])
def test_a_budget_change_before_the_refusal_is_processed_allows_a_retry(
    ease: Callable[[Cluster], object],
) -> None:
    engine = contested()
    assert evicted(engine) == ["rich"]
    asked_at = engine.cluster.budgets.easings

    ease(engine.cluster)
    refuse(engine, asked_at)

    assert evicted(engine) == ["rich"]


@pytest.mark.parametrize("ease", EASED, ids=["allows more", "is deleted", "for a moment"])
def test_a_budget_change_before_the_eviction_was_requested_causes_no_retry(
    ease: Callable[[Cluster], object],
) -> None:
    engine = contested()
    assert evicted(engine) == ["rich"]

    ease(engine.cluster)
    refuse(engine, engine.cluster.budgets.easings)

    assert evicted(engine) == []


@pytest.mark.parametrize(
    "change",
    [budget(allowed=0), budget("new", allowed=5), budget(allowed=9, namespace="elsewhere")],
    ids=["nothing new", "another budget", "another namespace"],
)
def test_a_change_that_does_not_allow_the_eviction_causes_no_retry(
    change: DisruptionBudget,
) -> None:
    engine = contested()
    assert evicted(engine) == ["rich"]
    refuse(engine)

    modify(engine.cluster, change)

    assert evicted(engine) == []


def test_a_job_that_was_refused_too_often_is_retried_when_a_budget_changes() -> None:
    engine = contested()
    job = engine.cluster.state.tasks[Uid("uid-poor")].job
    for _ in range(20):
        engine.cluster.failures.note_refused_room(job, NOW + 60, "refused", [Uid("uid-rich")])
    engine.cluster.failures.spare([Uid("uid-rich")], NOW + 60)
    assert evicted(engine) == []

    modify(engine.cluster, budget(allowed=1))

    assert evicted(engine) == ["rich"]


def test_a_budget_change_triggers_a_cycle_only_after_a_refused_eviction() -> None:
    engine = contested()
    changes = [budget(allowed=allowed) for allowed in (1, 0, 2)]
    assert not any(engine.cluster.apply(_modified(each)) for each in changes)

    assert evicted(engine) == ["rich"]
    refuse(engine)

    assert engine.cluster.apply(_modified(budget(allowed=3)))


def _modified(item: DisruptionBudget) -> Change[KubeObject]:
    return Change(EventType.MODIFIED, item, None)
