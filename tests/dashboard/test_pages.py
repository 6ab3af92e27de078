"""What the pages show of scenarios: figures, places, reasons, and what needs a person."""

from functools import cache

import pytest

from bindery.answers.shares import shares_of
from bindery.answers.wire import to_wire
from bindery.dashboard.facts import Picture
from bindery.dashboard.listing import TableQuery
from bindery.dashboard.pages.gang import gang_page
from bindery.dashboard.pages.gangs import gangs_page
from bindery.dashboard.pages.nodes import node_page, nodes_page
from bindery.dashboard.pages.overview import overview_page
from bindery.dashboard.pages.promises import promises_page
from bindery.dashboard.pages.queues import queue_page, queues_page
from bindery.dashboard.past import QueuePoint
from bindery.dashboard.seen import shown_to
from bindery.dashboard.sitemap import PAGES
from bindery.scheduler.insight.order import Turns
from bindery.scheduler.insight.waiting import explain
from bindery.scheduler.model.jobs import JobKey
from tests.dashboard.nopast import NoHistory
from tests.dashboard.pictures import BUSY, TWO_TEAMS, html, picture, picture_in, rights, source_in

SHOW_ALL = TableQuery(filters=(("show", "all"),))


@cache
def busy() -> Picture:
    return picture_in(BUSY)


class PastOfQueues(NoHistory):
    """A past with one point of every queue."""

    def queue_trend(self, queue: str, resource: str) -> list[QueuePoint]:  # noqa: ARG002
        return [QueuePoint(0.0, 1.0, 2.0, 3.0, 4.0, 5.0)]


def test_every_share_is_that_of_the_command() -> None:
    """The page of queues and `bindery queues -o json` have the same figures."""
    expected = to_wire(shares_of(source_in(BUSY)))["queues"]

    for resource in ("gpu", "cpu", "memory"):
        asked = TableQuery(size=1000, filters=(("resource", resource),))
        rows = queues_page(busy(), asked).listing.rows
        assert [
            (row.name, row.allocated, row.fair_share, row.quota, row.limit, row.kept, row.waiting)
            for row in rows
        ] == [
            (
                queue["name"],
                queue["resources"][resource]["allocated"],
                queue["resources"][resource]["fairShare"],
                queue["resources"][resource]["quota"],
                queue["resources"][resource]["limit"],
                queue["resources"][resource]["kept"],
                queue["waiting"],
            )
            for queue in expected
        ]


def test_reason_message_and_place_of_a_waiting_gang_are_those_of_explain() -> None:
    for gang in gangs_page(busy(), TableQuery(size=1000)).listing.rows:
        explained = explain(source_in(BUSY).world().engine, gang.key)
        assert explained is not None
        assert (gang.reason, gang.message) == (explained.reason, explained.message)
        position = explained.position
        assert gang.place == (position.place if position is not None else None)
        if position is not None:
            assert gang.ahead is not None
            assert gang.ahead.first == position.ahead


def test_the_order_of_a_picture_is_the_order_of_serving() -> None:
    order: list[JobKey] = []
    world = source_in(BUSY).world()
    list(world.engine.cycle(inspect=lambda session: order.extend(Turns(session).order)))

    assert busy().order == tuple(order)


def test_the_waiting_gangs_come_in_the_order_of_their_places() -> None:
    places = [row.place for row in gangs_page(busy(), TableQuery()).listing.rows]
    known = [place for place in places if place is not None]

    assert known == sorted(known)
    assert places[: len(known)] == known


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("Misconfigured", "gang vision/typo"),
        ("Misconfigured", "gang vision/huge"),
        ("Misconfigured", "queue old-team"),
        ("Sick node", "node c-dead"),
        ("Starved queue", "queue vision"),
    ],
)
def test_the_first_page_names_what_needs_a_person(kind: str, what: str) -> None:
    rows = overview_page(busy(), TableQuery()).listing.rows

    assert (kind, what) in {(row.kind, row.what) for row in rows}


def test_a_gang_that_only_waits_needs_no_person() -> None:
    assert "gang language/ablation1" not in {
        row.what for row in overview_page(busy(), TableQuery()).listing.rows
    }


@pytest.mark.parametrize(
    ("node", "state", "mark"),
    [
        ("a0", "full", ""),
        ("a9", "fragmented", ""),
        ("a10", "reserved", "idle"),
        ("b3", "reserved", "shared"),
        ("c6", "freed", "full"),
        ("c9", "reserved", ""),
        ("c-dead", "sick", ""),
        ("c-drained", "cordoned", "free"),
        ("cpu4", "free", ""),
    ],
)
def test_the_map_shows_the_state_of_a_node(node: str, state: str, mark: str) -> None:
    rows = {row.name: row for row in nodes_page(busy(), TableQuery(size=1000)).listing.rows}

    assert rows[node].state == state
    assert not mark or mark in rows[node].marks


def test_a_node_has_its_pods_and_the_gangs_that_room_is_kept_for() -> None:
    page = node_page(busy(), "c9", TableQuery())

    assert page is not None
    assert [row.name for row in page.listing.rows] == ["evaluate-0"]
    assert page.kept_for == (JobKey("serving", "evaluate", True),)


def test_the_map_is_by_rack_and_can_be_narrowed_to_one() -> None:
    page = nodes_page(busy(), TableQuery(size=1000, filters=(("rack", "rack-b"),)))

    assert [rack.name for rack in page.racks] == ["z1 / rack-b"]
    assert page.racks[0].nodes == tuple(f"b{index}" for index in range(12))
    assert page.all_racks == ("rack-a", "rack-b", "rack-c", "rack-d")


def test_a_gang_shows_where_it_runs_and_the_command_for_its_logs() -> None:
    page = gang_page(busy(), JobKey("language", "pretrain", True), TableQuery(), NoHistory())

    assert page is not None
    assert [(domain.name, domain.pods) for domain in page.domains] == [("rack-a", 8)]
    assert "kubectl logs -n language" in page.logs
    assert "topology.bindery.dev/rack" in page.topology


def test_a_gang_shows_its_stages_and_the_room_that_is_kept() -> None:
    page = gang_page(busy(), JobKey("serving", "evaluate", True), TableQuery(), NoHistory())

    assert page is not None
    assert [(stage.name, bool(stage.kept_on)) for stage in page.stages] == [
        ("server", False),
        ("clients", True),
    ]
    assert [promise.stage for promise in page.promises] == ["clients"]


def test_a_gang_shows_which_gangs_would_be_evicted_for_it() -> None:
    two_teams = picture_in(TWO_TEAMS)
    page = gang_page(two_teams, JobKey("default", "sweep", True), TableQuery(), NoHistory())

    assert page is not None
    assert page.gang.reason


def test_reservations_are_on_the_time_line() -> None:
    rows = promises_page(busy(), TableQuery()).listing.rows

    assert ("reservation", JobKey("vision", "sweep", True)) in {(r.kind, r.gang) for r in rows}
    assert ("later stage", JobKey("serving", "evaluate", True)) in {(r.kind, r.gang) for r in rows}


def test_figures_of_the_first_page_begin_alike_and_states_of_nodes_are_titles() -> None:
    text = html(PAGES[0], overview_page(busy(), TableQuery()), busy())

    assert "<h2>Memory</h2>" in text
    assert ">Sick: 1</a>" in text
    assert ">Partly used: 5</a>" in text
    assert 'preserveAspectRatio="none"' not in text, "a bar would stretch its hatch"


def test_a_queue_shows_its_path_its_gangs_and_its_trend() -> None:
    page = queue_page(busy(), "language", SHOW_ALL, PastOfQueues())

    assert page is not None
    assert page.parents == ("company", "research")
    assert {row.queue for row in page.listing.rows} == {"language"}
    assert page.trend.points == (QueuePoint(0.0, 1.0, 2.0, 3.0, 4.0, 5.0),)


def test_what_does_not_exist_and_what_may_not_be_seen_have_no_page_alike() -> None:
    seen = shown_to(busy(), rights("vision"))

    for name in ("pretrain", "no-such-gang"):
        assert gang_page(seen, JobKey("language", name, True), TableQuery(), NoHistory()) is None
    assert node_page(seen, "a0", TableQuery()) is None
    assert queue_page(seen, "language", TableQuery(), NoHistory()) is None


def test_a_person_without_the_right_for_queues_sees_those_of_own_gangs() -> None:
    page = queues_page(shown_to(busy(), rights("vision")), TableQuery())

    assert not page.shows_all
    assert {row.name for row in page.listing.rows} == {"vision", "visoin"}


def test_a_running_gang_of_a_file_is_not_shown_as_waiting() -> None:
    """In a file no scheduler has written a status: the pods decide."""
    found = picture(
        """
        nodes: [{name: n, gpus: 4}]
        queues: [{name: q, gpu: {quota: 8}}]
        jobs: [{name: runs, queue: q, pods: [{gpus: 1, state: Running, node: n}]}]
        """
    )

    (row,) = gangs_page(found, SHOW_ALL).listing.rows
    assert row.state == "Running"
    assert gangs_page(found, TableQuery()).listing.total == 0


def test_a_pod_without_a_group_that_waits_has_a_page() -> None:
    found = picture(
        """
        nodes: [{name: n, gpus: 1}]
        objects:
        - apiVersion: v1
          kind: Pod
          metadata: {name: alone, namespace: default}
          spec:
            schedulerName: bindery
            containers: [{name: c, image: i, resources: {requests: {nvidia.com/gpu: "4"}}}]
        """
    )

    page = gang_page(found, JobKey("default", "alone", False), TableQuery(), NoHistory())
    assert page is not None
    assert page.gang.reason == "Unschedulable"
