"""What the scheduler writes itself starts no cycle; what a plan depends on starts one."""

from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from bindery.kube.objects.podgroups import PodCounts, PodGroup
from bindery.kube.objects.queues import Queue
from bindery.kube.objects.watched import Condition
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.cache.cluster import Cluster
from tests.scheduler.schedulerworld import NOW, add, configuration, group, queue


@dataclass(frozen=True)
class _Known:
    """A cluster with one PodGroup and one Queue."""

    cluster: Cluster
    group: PodGroup
    queue: Queue

    def sees(self, item: PodGroup | Queue) -> bool:
        """Return whether a plan may depend on the new version `item`."""
        newer = replace(item, metadata=replace(item.metadata, resource_version="9"))
        return self.cluster.apply(Change(EventType.MODIFIED, newer, item))


@pytest.fixture
def known() -> _Known:
    cluster, one, other = Cluster(configuration(), lambda: NOW), group("g"), queue("q")
    add(cluster, one, other)
    return _Known(cluster, one, other)


WAITS = Condition(type="Scheduled", status="False", reason="Unschedulable", message="no room")


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [WAITS]},
        {"state": "Bound", "since": "2026-01-01T00:00:00Z"},
        {"state": "Running", "since": "2026-01-01T00:00:00Z"},
        {"ran_seconds": 5.0},
        {"pods": PodCounts(pending=3), "assigned_queue": "q"},
    ],
)
def test_conditions_counts_and_states_of_a_gang_are_no_news(
    known: _Known, status: dict[str, Any]
) -> None:
    assert not known.sees(replace(known.group, status=replace(known.group.status, **status)))


def test_the_queue_where_a_gang_is_charged_is_news(known: _Known) -> None:
    assert known.sees(replace(known.group, status=replace(known.group.status, queue="q")))


def test_a_gang_with_another_minimum_is_news(known: _Known) -> None:
    spec = replace(known.group.spec, min_member=known.group.spec.min_member + 1)

    assert known.sees(replace(known.group, spec=spec))


def test_the_amounts_in_the_status_of_a_queue_are_no_news(known: _Known) -> None:
    status = replace(known.queue.status, allocated={"cpu": "3"}, fair_share={"cpu": "4"})

    assert not known.sees(replace(known.queue, status=status))


def test_another_priority_of_a_queue_is_news(known: _Known) -> None:
    assert known.sees(replace(known.queue, spec=replace(known.queue.spec, priority=7)))


def test_the_end_of_a_gang_or_a_queue_is_news(known: _Known) -> None:
    assert known.cluster.apply(Change(EventType.DELETED, known.group, known.group))
    assert known.cluster.apply(Change(EventType.DELETED, known.queue, known.queue))
