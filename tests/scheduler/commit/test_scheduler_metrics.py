"""The scheduler's own series: latencies and evictions by queue."""

from prometheus_client import REGISTRY, Counter

from bindery.scheduler.commit import metrics
from bindery.scheduler.planning.reports import CycleReport
from bindery.scheduler.plugins.findings import NodeAnswer
from tests.scheduler.schedulerworld import NOW, engine_with, gang, node


def queues_of(family: object) -> dict[str, float]:
    """Return queue -> count or value of a metric family."""
    (metric,) = family.collect()  # type: ignore[attr-defined]  # a Counter or Histogram
    wanted = (f"{metric.name}_count", f"{metric.name}_total")
    return {s.labels["queue"]: s.value for s in metric.samples if s.name in wanted}


def test_a_commit_counts_once_in_its_queue_and_series_of_old_queues_are_dropped() -> None:
    before = queues_of(metrics.COMMIT_SECONDS).get("default", 0.0)
    (draft,) = list(engine_with(node("n"), *gang("g", 3)).cycle())
    for task in draft.tasks:
        task.created = "2025-06-15T15:06:30Z"

    metrics.record_commit(draft, NOW)
    assert queues_of(metrics.COMMIT_SECONDS)["default"] == before + 1

    metrics.EVICTED_PODS.labels("reclaim", "gone").inc()
    metrics.drop_queues({"default"})
    assert "default" in queues_of(metrics.COMMIT_SECONDS)
    assert "gone" not in queues_of(metrics.EVICTED_PODS)


def test_correct_and_wrong_predictions_of_zones_are_counted() -> None:
    def counts() -> tuple[float, float]:
        wrong = metrics.WRONG_PREDICTIONS.labels("TopologyAffinityError")
        return value_of(metrics.NUMA_PREDICTIONS), value_of(wrong)

    total, wrong = counts()
    answers = [NodeAnswer(""), NodeAnswer("TopologyAffinityError")]

    metrics.record(CycleReport(answers=answers), 0.0)

    assert counts() == (total + 2, wrong + 1)


def test_pods_that_wait_beside_a_scheduled_gang_count_by_their_own_reason() -> None:
    engine = engine_with(node("n", 2), *gang("g", 3, 2), *gang("web", 2, 0, cpu=9))
    list(engine.cycle())
    list(engine.cycle())

    metrics.record(engine.report, 0.0)

    (family,) = metrics.PENDING_PODS.collect()
    assert {s.labels["reason"]: s.value for s in family.samples} == {"Unschedulable": 3}


def test_a_process_that_no_longer_leads_reports_no_pods() -> None:
    def pods() -> tuple[float | None, float | None]:
        waiting = {"reason": "Unschedulable"}
        return (
            REGISTRY.get_sample_value("bindery_pending_pods", waiting),
            REGISTRY.get_sample_value("bindery_unstarted_pods"),
        )

    metrics.PENDING_PODS.labels("Unschedulable").set(3)
    metrics.UNSTARTED_PODS.set(2)
    assert pods() == (3, 2)

    metrics.end_term()

    assert pods() == (None, 0)


def value_of(counter: Counter) -> float:
    (metric,) = counter.collect()
    return next(each.value for each in metric.samples if each.name.endswith("_total"))
