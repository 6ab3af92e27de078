"""Changes by administrators apply from the next cycle on."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from bindery.api.configuration import SchedulerConfiguration
from bindery.api.usage import UsageConfiguration
from bindery.kube.objects.watched import Meta, PriorityClass
from bindery.scheduler import configuration as configurations
from bindery.scheduler.commit import metrics
from bindery.scheduler.configuration import ConfigurationFile
from bindery.scheduler.usage.metrics import QueueCollector
from bindery.scheduler.usage.source import PastUsage
from tests.scheduler.schedulerworld import (
    Clock,
    add,
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
)


def priority_class(name: str, value: int) -> PriorityClass:
    return PriorityClass(metadata=Meta(name=name, uid=f"uid-class-{name}"), value=value)


def test_a_changed_value_of_a_priority_class_changes_the_order_of_service() -> None:
    engine = engine_with(
        priority_class("a", 1),
        priority_class("b", 2),
        group("ga", 1, priority_class="a"),
        pod("ga-0", group="ga"),
        group("gb", 1, priority_class="b"),
        pod("gb-0", group="gb"),
    )
    add(engine.cluster, node("n", 1))
    modify(engine.cluster, priority_class("a", 3))

    assert plan(engine) == {"ga-0": "n"}


def test_a_moved_queue_counts_in_its_new_parent_at_once() -> None:
    engine = engine_with(
        node("n"),
        queue("small", cpu=1),
        queue("large"),
        queue("q", parent="large"),
        *gang("g", 2, queue="q"),
    )
    modify(engine.cluster, queue("q", parent="small"))
    assert plan(engine) == {}
    assert "small" in report_of(engine, "g").message

    modify(engine.cluster, queue("small", cpu=2))

    assert plan(engine).keys() == {"g-0", "g-1"}


def usage(window_seconds: float) -> UsageConfiguration:
    return UsageConfiguration(source="record", window_seconds=window_seconds, k_value=2.0)


def test_a_changed_window_of_past_usage_applies_from_the_next_cycle() -> None:
    clock = Clock()
    engine = engine_with(
        node("n", 4),
        queue("a", quotas={"cpu": 1}),
        pod("held", cpu=2, on="n", queue="a"),
        clock=clock,
        usage=usage(1000),
    )
    plan(engine)
    clock.now += 500
    plan(engine)
    delete(engine.cluster, pod("held", cpu=2, on="n", queue="a"))
    clock.now += 100

    def used() -> float:
        plan(engine)
        assert engine.past.latest is not None
        moment, parts = engine.past.latest
        return float(parts[moment.resources.index("cpu"), list(moment.queues).index("a")])

    assert used() > 0.3
    changed = engine.configuration.model_copy(update={"usage": usage(50)})
    engine.configure(changed)

    assert used() == 0
    assert engine.past.k_value == 2.0


async def test_a_changed_file_changes_the_window_but_not_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "scheduler.yaml"
    head = "apiVersion: scheduling.bindery.dev/v1alpha1\nkind: SchedulerConfiguration\n"
    path.write_text(f"{head}usage: {{source: record, windowSeconds: 600}}\n")
    file = ConfigurationFile(path)
    monkeypatch.setattr(configurations, "POLL_S", 0.01)
    changes = file.changes()
    assert isinstance(changes, AsyncGenerator)

    path.write_text(f"{head}usage: {{source: record, windowSeconds: 60}}\n")
    first = await asyncio.wait_for(anext(changes), 60)
    path.write_text(f"{head}usage: {{source: none, windowSeconds: 30}}\n")
    second = await asyncio.wait_for(anext(changes), 60)

    assert first.usage.window_seconds == 60
    assert second.usage == first.usage
    await changes.aclose()


def test_an_engine_can_be_reconfigured_with_the_default_configuration() -> None:
    engine = engine_with(node("n"), pod("p"))

    engine.configure(SchedulerConfiguration())

    assert plan(engine) == {"p": "n"}


# ---- series of queues that are gone -----------------------------------------------------------


def queues_told(past: PastUsage) -> set[str]:
    return {
        sample.labels["queue"]
        for family in QueueCollector(past).collect()
        for sample in family.samples
        if "queue" in sample.labels
    }


def test_a_deleted_queue_has_series_only_while_its_pods_hold_resources() -> None:
    engine = engine_with(
        node("n"), queue("q"), queue("kept"), pod("p", on="n", queue="q"), pod("x", queue="named")
    )
    plan(engine)
    assert {"q", "kept"} <= queues_told(engine.past)
    assert "named" not in queues_told(engine.past)

    delete(engine.cluster, queue("q"))
    plan(engine)
    assert "q" in queues_told(engine.past)

    delete(engine.cluster, pod("p", on="n", queue="q"))
    plan(engine)
    assert "q" not in queues_told(engine.past)
    assert "kept" in queues_told(engine.past)


def test_counters_of_deleted_queues_are_dropped() -> None:
    for name in ("gone-1", "stays-1"):
        metrics.COMMIT_SECONDS.labels(name).observe(1)
        metrics.EVICTED_PODS.labels("reclaim", name).inc()

    metrics.drop_queues({"stays-1"})

    told = {
        (family.name, sample.labels["queue"])
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.labels.get("queue", "").endswith("-1")
    }
    assert told == {
        ("bindery_commit_latency_seconds", "stays-1"),
        ("bindery_evicted_pods", "stays-1"),
    }
    metrics.drop_queues(set())
