"""The past of a gang and the trend of a queue, as a person reads them in each form."""

import csv
import io
import json

from bindery.dashboard import charts, rendering
from bindery.dashboard.listing import TableQuery
from bindery.dashboard.pages.paths import past_path, trend_path
from bindery.dashboard.pages.trend import trend_of
from bindery.dashboard.past import (
    HistoryReader,
    PastEviction,
    PastPlan,
    PastWait,
    QueuePoint,
)
from bindery.dashboard.rights import Rights
from bindery.dashboard.seen import SeenHistory
from bindery.dashboard.sitemap import PAGES, PathParts
from bindery.scheduler.model.jobs import JobKey
from tests.dashboard.nopast import NoHistory
from tests.dashboard.pictures import html, picture, rights

SCENARIO = """
    nodes: [{name: n, gpus: 8}]
    queues: [{name: q, gpu: {quota: 8}}]
    jobs:
    - {name: train, namespace: team, queue: q, pods: [{gpus: 16}]}
"""
TRAIN = JobKey("team", "train", True)
GONE = JobKey("team", "gone", True)
OTHER = JobKey("theirs", "serve", True)
HOUR = 3600.0
BEGIN = 1_800_000_000.0


class Past(NoHistory):
    """A gang that waited, was planned, and lost its pods; and one that is gone."""

    since: float | None = BEGIN

    def evictions_of(self, gang: JobKey) -> list[PastEviction]:
        at = BEGIN + 3 * HOUR
        return [PastEviction(at, at, gang, "Reclaim", 4, OTHER, "product", "1 of them moved")]

    def waits(self, gang: JobKey) -> list[PastWait]:
        message = "queue q is at its limit; ahead: theirs/serve"
        return [
            PastWait(gang, "q", BEGIN, BEGIN + HOUR, "OverLimit", message, 1800.0, 2),
        ]

    def plans(self, gang: JobKey) -> list[PastPlan]:
        at, nodes = BEGIN + 2 * HOUR, ("n1", "n2")
        return [PastPlan(at, at + 5, gang, "Succeeded", 8, nodes, 6, 7200.0, 1)]

    def queue_trend(self, queue: str, resource: str) -> list[QueuePoint]:  # noqa: ARG002
        if resource != "gpu":
            return []
        return [
            QueuePoint(BEGIN, BEGIN + HOUR, 2.0, 4.0, 8.0, 3.0),
            QueuePoint(BEGIN + HOUR, BEGIN + 2 * HOUR, 6.0, 4.0, 6.0, 0.5),
        ]


def page(name: str, parts: PathParts, form: str, past: HistoryReader | None = None) -> str:
    """Return the page `name` of the scenario as `form`."""
    (kind,) = (each for each in PAGES if each.name == name)
    of = picture(SCENARIO)
    made = kind.make(of, parts, TableQuery.of({}, kind.filters), past or Past())
    assert made is not None
    if form == "html":
        return html(kind, made, of)
    return rendering.wire(made, of, 1.0) if form == "json" else rendering.table(made.listing)


def test_the_page_of_a_gang_has_how_long_it_waited_before_a_plan_and_why() -> None:
    text = " ".join(page("gang", PathParts("team", "train"), "html").split())

    assert "1 plan for 8 pods: Succeeded. It had waited 2 h." in text
    assert 'On <a href="/nodes/n1">n1</a>, <a href="/nodes/n2">n2</a> and 4 more.' in text
    assert "Waited 30 min, 2 times in all: <strong>OverLimit</strong>" in text
    assert "queue q is at its limit" in text
    assert text.index("evicted by Reclaim") < text.index("1 plan") < text.index("Waited 30 min")
    assert f'href="{past_path(OTHER)}"' in text, "the claimant no longer exists"


def test_the_past_of_a_gang_is_a_table_in_each_form() -> None:
    parts = PathParts("team", "train")
    rows = list(csv.DictReader(io.StringIO(page("past", parts, "csv"))))

    assert [row["What"] for row in rows] == ["Eviction", "Plan", "Wait"]
    assert rows[0]["For gang"] == "theirs/serve"
    assert (rows[1]["Waited, seconds"], rows[1]["Nodes"]) == ("7200", "n1, n2")
    assert (rows[2]["Times"], rows[2]["From"]) == ("2", "2027-01-15T08:00:00Z")
    found = json.loads(page("past", parts, "json"))["listing"]["rows"]
    assert [row["waitedS"] for row in found] == [None, 7200.0, 1800.0]
    assert "and 4 more" in page("past", parts, "html")


def test_the_past_of_a_gang_that_no_longer_exists_can_be_read_and_an_unknown_one_has_none() -> None:
    (kind,) = (each for each in PAGES if each.name == "past")
    parts, asked = PathParts("team", "gone"), TableQuery()

    assert "it no longer exists" in page("past", parts, "html")
    assert kind.make(picture(SCENARIO), parts, asked, NoHistory()) is None


def test_a_person_without_the_right_reads_neither_claimants_nor_nodes_nor_trends() -> None:
    def seen(allowed: Rights) -> str:
        past = SeenHistory(Past(), allowed)
        parts = PathParts("team", "train")
        queue = page("queue", PathParts("", "q"), "json", past)
        return page("gang", parts, "json", past) + page("past", parts, "csv", past) + queue

    text = seen(rights("team"))

    assert "theirs" not in text
    assert "n1" not in text
    assert '"points": []' in text
    assert "theirs/serve" in seen(rights("team", "theirs"))
    assert '"points": []' not in seen(rights("team", queues=True))
    assert "n1" in seen(rights("team", nodes=True))


def test_the_trend_of_a_queue_is_a_drawing_a_text_and_a_table() -> None:
    text = page("queue", PathParts("", "q"), "html")

    assert text.count("<polyline") == 4
    assert "At the end: used 6, fair share 4, requested 6. At most used: 6." in text
    assert "At the end: 0.5. At most: 3." in text
    assert '<td data-title="Gangs waiting" class="number">0.5</td>' in text
    assert f'href="{trend_path("q")}?resource=gpu"' in text


def test_the_trend_of_a_queue_has_all_slices_in_csv_the_newest_first() -> None:
    rows = list(csv.DictReader(io.StringIO(page("trend", PathParts("", "q"), "csv"))))

    assert [row["Used"] for row in rows] == ["6", "2"]
    assert [row["Gangs waiting"] for row in rows] == ["0.5", "3"]
    assert rows[0]["Until"] == "2027-01-15T10:00:00Z"


def test_only_resources_of_which_something_is_kept_can_be_chosen() -> None:
    (kind,) = (each for each in PAGES if each.name == "trend")
    asked = TableQuery.of({"resource": "cpu"}, kind.filters)

    found = trend_of(picture(SCENARIO), "q", asked, Past())

    assert (found.resource, found.resources) == ("gpu", ("gpu",))
    assert len(found.points) == 2


def test_without_a_history_the_page_of_a_trend_names_the_setting() -> None:
    assert "history.enabled" in page("trend", PathParts("", "q"), "html", NoHistory())


def test_a_line_is_level_in_a_slice_and_has_a_gap_where_nothing_is_kept() -> None:
    points = [
        QueuePoint(0.0, 10.0, 1.0, 0.0, 0.0, 2.0),
        QueuePoint(10.0, 20.0, 2.0, 0.0, 0.0, None),
        QueuePoint(60.0, 100.0, 4.0, 0.0, 0.0, 1.0),
    ]

    assert list(charts.lines(points, "allocated", 4.0)) == [
        "0.00,75.00 10.00,75.00 10.00,50.00 20.00,50.00",
        "60.00,0.00 100.00,0.00",
    ]
    assert list(charts.lines(points, "waiting_gangs", charts.top(points, "waiting_gangs"))) == [
        "0.00,0.00 10.00,0.00",
        "60.00,50.00 100.00,50.00",
    ]
    assert list(charts.lines([], "allocated", 1.0)) == []
