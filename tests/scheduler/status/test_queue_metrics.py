"""Metrics of queues: quotas, limits, fair shares and waiting pods."""

from msgspec import structs

from bindery.api.times import timestamp
from bindery.kube.objects import watched as kube
from bindery.kube.objects.queues import Queue, QueueResource, QueueSpec
from bindery.scheduler.engine import Engine
from bindery.scheduler.status.queue_metrics import NOTE_EVERY_S, QueueFigures
from tests.scheduler.schedulerworld import NOW, add, delete, engine_with, gang, node, plan


def queue(
    name: str, *, quota: int, over_quota_weight: float | None = None, limit: int = -1
) -> Queue:
    rule = QueueResource(quota=quota, over_quota_weight=over_quota_weight, limit=limit)
    spec = QueueSpec(resources={"gpu": rule})
    return Queue(metadata=kube.Meta(name=name, uid=f"uid-{name}"), spec=spec)


def _created(meta: kube.Meta, at: float) -> kube.Meta:
    return structs.replace(meta, creation_timestamp=timestamp(at))


def scraped(figures: QueueFigures) -> dict[tuple[str, str, str], float]:
    return {
        (sample.name, sample.labels["queue"], sample.labels.get("resource", "")): sample.value
        for family in figures.collect()
        for sample in family.samples
    }


def note(figures: QueueFigures, engine: Engine, now: float = NOW) -> None:
    plan(engine)
    figures.note(engine.cluster.state, engine.report.fair, now)


def test_quota_limit_fair_share_and_waiting_pods_are_exported_by_queue() -> None:
    team = queue("team", quota=2, over_quota_weight=1, limit=6)
    group_, *pods = gang("waits", 2, queue="team", gpu=4)
    waits = [structs.replace(group_, metadata=_created(group_.metadata, NOW)), *pods]
    engine = engine_with(node("n", gpu=3), team, *waits)
    figures = QueueFigures()
    note(figures, engine, NOW + 60)

    found = scraped(figures)

    assert found["bindery_queue_quota", "team", "gpu"] == 2
    assert found["bindery_queue_limit", "team", "gpu"] == 6
    assert found["bindery_queue_fair_share", "team", "gpu"] == 3
    assert ("bindery_queue_limit", "team", "cpu") not in found, "it is unlimited"
    assert found["bindery_queue_waiting_pods", "team", ""] == 2
    assert found["bindery_queue_waiting_gangs", "team", ""] == 1
    assert found["bindery_queue_longest_wait_seconds", "team", ""] == 60


def test_pods_of_a_gang_that_needs_none_wait_since_their_creation() -> None:
    group_, *pods = gang("web", 2, 0, queue="team", gpu=2)
    old = structs.replace(group_, metadata=_created(group_.metadata, NOW - 86400))
    made = [
        structs.replace(p, metadata=_created(p.metadata, NOW - 5 * i)) for i, p in enumerate(pods)
    ]
    engine = engine_with(node("n", gpu=3), queue("team", quota=2), old, *made)
    plan(engine)
    figures = QueueFigures()
    note(figures, engine, NOW + 60)

    found = scraped(figures)

    assert found["bindery_queue_waiting_pods", "team", ""] == 1
    assert found["bindery_queue_waiting_gangs", "team", ""] == 1
    assert found["bindery_queue_longest_wait_seconds", "team", ""] in (60, 65)


def test_a_deleted_queue_has_no_series() -> None:
    team = queue("team", quota=2)
    engine = engine_with(node("n", gpu=3), team)
    figures = QueueFigures()
    note(figures, engine)
    assert {"team"} <= {name for _, name, _ in scraped(figures)}

    delete(engine.cluster, team)
    note(figures, engine, NOW + NOTE_EVERY_S)

    assert "team" not in {name for _, name, _ in scraped(figures)}


def test_a_burst_of_cycles_updates_the_figures_once() -> None:
    engine = engine_with(node("n", gpu=3), queue("team", quota=2))
    figures = QueueFigures()
    note(figures, engine)
    add(engine.cluster, structs.replace(queue("late", quota=1)))
    note(figures, engine, NOW + NOTE_EVERY_S / 2)

    assert "late" not in {name for _, name, _ in scraped(figures)}
