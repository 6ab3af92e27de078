"""The benchmark of the dashboard: its cluster, its report, and that every page is answered."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from benchmarks import dashboard, results, summary
from benchmarks.dashboard import Lap, Spans, Times
from benchmarks.pageworlds import GANG_SIZE, Mirrors, PageWorld
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.snapshot import ClusterSnapshot, is_bound
from bindery.kube.watches.store import EventType


class NothingFound(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


SMALL = PageWorld(nodes=100, pods=1_000)
FULL = PageWorld(nodes=5_000, pods=50_000)


@pytest.fixture(scope="module")
def lap() -> Lap:
    return dashboard.measure(SMALL, Spans(idle_s=0.5, looking_s=0.0), lambda _: None)


def test_every_page_is_measured(lap: Lap) -> None:
    questions = {"help of a gang", "its answer", "whatif, a manifest", "an answer of whatif"}
    pages = [each for each in lap.times if each.page not in questions]
    assert {each.page for each in lap.times} == set(dashboard.paths_of(SMALL)) | questions
    assert sum(each.count for each in pages) == 2 * len(dashboard.paths_of(SMALL))
    assert all(0 < each.p50 <= each.p95 <= each.worst for each in lap.times)


def test_memory_and_idle_cpu_are_measured(lap: Lap) -> None:
    assert lap.page_mb > 50
    assert lap.scheduler_mb > 50
    assert lap.idle_cpu_percent >= 0


def test_a_page_that_is_not_answered_fails_the_benchmark() -> None:
    with HTTPServer(("127.0.0.1", 0), NothingFound) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        browser = dashboard.Browser(server.server_port)

        with pytest.raises(RuntimeError, match="404"):
            browser.first_byte_ms("/nodes", "auditor")


def test_the_cluster_has_its_pods_on_most_gpus_and_the_others_wait() -> None:
    snapshot = ClusterSnapshot.of(Mirrors(SMALL).objects())

    bound = [pod.spec.node_name for pod in snapshot.pods if is_bound(pod)]
    assert len(snapshot.nodes) == 100
    assert len(snapshot.pods) == 1_000
    assert len(bound) == SMALL.running * GANG_SIZE == 780
    assert max(map(bound.count, set(bound))) == 8
    assert len(snapshot.pods_by_group) == 100
    assert {type(each) for each in snapshot.groups} == {PodGroup}


def test_the_measured_cluster_has_the_size_of_its_target() -> None:
    assert (FULL.gangs, FULL.running) == (5_000, 3_900)


def test_a_change_of_a_pod_is_one_line_of_a_watch() -> None:
    mirrors = Mirrors(SMALL)

    first, second = mirrors.change_a_pod(), mirrors.change_a_pod()

    assert [change.type for change in (*first, *second)] == [EventType.MODIFIED] * 2
    assert first[0].object.metadata.name != second[0].object.metadata.name


def test_the_report_has_the_slowest_page_against_its_bar() -> None:
    times = (
        Times("a", planning=False, count=9, p50=10.0, p95=100.0, worst=900.0),
        Times("b", planning=False, count=9, p50=20.0, p95=330.0, worst=340.0),
        Times("a", planning=True, count=9, p50=30.0, p95=150.0, worst=200.0),
    )
    found = {
        each.name.partition(": ")[2]: results.is_reached(each)
        for each in summary.of_dashboard(Lap(FULL, times, 9.0, 4.0, 590.0, 500.0))
    }

    assert found == {
        "first byte of the slowest page, p95, while no plan runs": False,
        "first byte of the slowest page, p95, while a plan runs": True,
        "CPU while no page is open": True,
        "peak memory, against a scheduler and 100 MB": True,
    }


def test_the_table_has_both_states_of_a_page_in_one_row() -> None:
    times = (
        Times("a", planning=False, count=9, p50=10.0, p95=100.0, worst=900.0),
        Times("a", planning=True, count=9, p50=30.0, p95=150.0, worst=200.0),
    )

    text = dashboard.table(Lap(FULL, times, 9.0, 4.0, 590.0, 500.0))

    assert "| a | 10 | 100 | 900 | 30 | 150 | 200 |" in text
