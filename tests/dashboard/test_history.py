"""The recorded past, as the pages read it."""

import numpy as np
import pytest
from structlog.testing import capture_logs

from bindery.dashboard.history import RecordedHistory, decoded
from bindery.scheduler.history.codec import Past, encode
from bindery.scheduler.history.entries import NO_GANG, Gang, HistoryEntry, HistoryKind
from bindery.scheduler.model.jobs import JobKey
from bindery.scheduler.usage.formula import History

TRAIN = Gang("team", "train", "research", True)
SERVE = Gang("other", "serve", "product", True)
KEY = JobKey("team", "train", True)


def past(*entries: HistoryEntry, trends: History | None = None) -> Past:
    return Past(entries, trends or History.empty())


def evicted(claimant: Gang, moved: int = 0) -> HistoryEntry:
    return HistoryEntry(
        HistoryKind.EVICTED,
        TRAIN,
        10.0,
        20.0,
        pods=8,
        reason="reclaim",
        claimant=claimant,
        moved=moved,
    )


def trends(resource: str, amount: float) -> History:
    """Return a slice of ten seconds in which the queue held `amount`, of which half is fair."""
    rows = tuple(f"{figure}/{resource}" for figure in ("allocated", "fairShare", "pending"))
    held = np.array([[[amount], [amount / 2], [1.0]]]) * 10.0
    return History(
        ("research",), rows, np.array([100.0]), np.array([110.0]), np.full((1, 3), 10.0), held
    )


def test_an_eviction_has_the_gang_that_got_the_room_and_where_pods_went() -> None:
    [shown] = RecordedHistory([past(evicted(SERVE, moved=3))]).evictions_of(KEY)

    assert (shown.begun, shown.at, shown.action, shown.pods) == (10.0, 20.0, "reclaim", 8)
    assert shown.claimant == JobKey("other", "serve", True)
    assert shown.claimant_queue == "product"
    assert shown.message.startswith("3 of them")


def test_an_eviction_for_no_other_gang_has_no_claimant() -> None:
    [shown] = RecordedHistory([past(evicted(NO_GANG))]).evictions_of(KEY)

    assert shown.claimant is None


def test_plans_and_waits_are_those_of_the_gang_the_oldest_first() -> None:
    entries = (
        HistoryEntry(
            HistoryKind.WAITED,
            TRAIN,
            50.0,
            90.0,
            times=2,
            seconds=30.0,
            reason="OverLimit",
            message="queue research is at its limit",
        ),
        HistoryEntry(
            HistoryKind.PLANNED,
            TRAIN,
            91.0,
            95.0,
            times=2,
            pods=8,
            seconds=160.0,
            reason="Succeeded",
            nodes=("n1",),
            node_count=7,
        ),
        HistoryEntry(HistoryKind.WAITED, TRAIN, 10.0, 50.0, seconds=40.0, reason="Unschedulable"),
        HistoryEntry(HistoryKind.WAITED, SERVE, 10.0, 50.0, seconds=40.0, reason="Unschedulable"),
    )
    history = RecordedHistory([past(*entries)])

    waits = history.waits(KEY)
    assert [(each.begun, each.ended, each.reason) for each in waits] == [
        (10.0, 50.0, "Unschedulable"),
        (50.0, 90.0, "OverLimit"),
    ]
    assert waits[1].message == "queue research is at its limit"
    assert (waits[1].seconds, waits[1].times) == (30.0, 2)
    [plan] = history.plans(KEY)
    assert (plan.at, plan.ended, plan.outcome, plan.pods) == (91.0, 95.0, "Succeeded", 8)
    assert (plan.nodes, plan.node_count) == (("n1",), 7)
    assert (plan.waited_s, plan.times) == (80.0, 2)
    assert history.since == 10.0


@pytest.mark.parametrize(("resource", "unit"), [("gpu", 1.0), ("cpu", 1.0), ("memory", 2.0**30)])
def test_a_trend_has_the_means_of_each_slice_in_the_units_of_the_page(
    resource: str, unit: float
) -> None:
    history = RecordedHistory([past(), past(trends=trends(resource, 8.0))])

    [point] = history.queue_trend("research", resource)
    assert (point.begun, point.at) == (100.0, 110.0)
    assert point.waiting_gangs is None
    assert (point.allocated, point.fair_share, point.requested) == (8 * unit, 4 * unit, 9 * unit)
    assert history.queue_trend("research", "example.com/nic") == []
    assert history.queue_trend("unknown", resource) == []


def test_a_trend_has_the_mean_number_of_gangs_that_wait() -> None:
    found = trends("gpu", 8.0)
    rows = ("waitingGangs", *found.resources)
    held = np.concatenate([np.array([[[25.0]]]), found.held], axis=1)
    with_gangs = History(found.queues, rows, found.start, found.end, np.full((1, 4), 10.0), held)

    [point] = RecordedHistory([past(trends=with_gangs)]).queue_trend("research", "gpu")

    assert (point.waiting_gangs, point.allocated) == (2.5, 8.0)


def test_a_malformed_record_is_left_out() -> None:
    text = encode(past(evicted(SERVE)), 20.0)

    with capture_logs() as logs:
        found = RecordedHistory(decoded({"": text, "inference": "scribble"}))

    assert len(found.evictions_of(KEY)) == 1
    assert [each["event"] for each in logs] == ["history is malformed"]


def test_nothing_is_kept_without_records() -> None:
    assert RecordedHistory().since is None
    assert RecordedHistory([past()]).since is None


def test_a_trend_is_the_sum_of_the_pools_of_a_queue() -> None:
    later = trends("gpu", 4.0)
    elsewhere = History(
        later.queues, later.resources, np.array([90.0]), np.array([106.0]), later.capacity,
        later.held,
    )  # fmt: skip
    one = past(trends=trends("gpu", 8.0))

    [point] = RecordedHistory([one, past(trends=elsewhere)]).queue_trend("research", "gpu")
    assert (point.begun, point.allocated, point.fair_share, point.requested) == (100, 12, 6, 14)

    long_ago = History(
        later.queues, later.resources, np.array([10.0]), np.array([20.0]), later.capacity,
        later.held,
    )  # fmt: skip
    [point] = RecordedHistory([one, past(trends=long_ago)]).queue_trend("research", "gpu")
    assert point.allocated == 8
