"""The races: workloads, comparisons, and that every contender binds all pods."""

import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks import bareclient, catalogue, racetable, report, results, summary
from benchmarks.cluster import open_cluster
from benchmarks.planning import loaded
from benchmarks.races import Lap, Standing, race
from benchmarks.usage import Usage, Writes
from benchmarks.workload import Workload

METRICS = """
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",resource="pods",subresource="binding",verb="POST"} 20
apiserver_request_total{code="409",resource="pods",subresource="binding",verb="POST"} 1
apiserver_request_total{code="201",resource="events",subresource="",verb="POST"} 4
apiserver_request_total{code="200",resource="events",subresource="",verb="PATCH"} 1.0
apiserver_request_total{code="200",resource="events",subresource="",verb="LIST"} 9
apiserver_request_total{code="200",resource="pods",subresource="",verb="WATCH"} 9
apiserver_request_duration_seconds_count{resource="pods",verb="POST"} 9
"""


def standing(*rates: float, own: Mapping[str, float] | None = None) -> Standing:
    """Return laps of 100 pods at `rates`; `own`: process -> its CPU seconds in each lap."""
    used = {"kube-apiserver": 0.3, "etcd": 0.1, **(own or {"bare-client": 0.1})}
    usage = {name: Usage(cpu_s, 100.0) for name, cpu_s in used.items()}
    return Standing(tuple(Lap(100, 0.1, 100 / rate, usage, Writes(120, 5)) for rate in rates))


RACES = {
    "gangs/bindery": standing(90, 100, 95, own={"scheduler": 0.05, "binder": 0.1}),
    "gangs/bare-client": standing(80, 80, 80),
    "gangs/bare-client-50-pods": standing(110, 110, 110),
    "gangs/kube-scheduler": standing(50, 50, 50),
    "gangs/kube-scheduler-10-percent": standing(60, 60, 60),
}


@pytest.mark.parametrize("name", catalogue.workloads(700, 10))
@pytest.mark.parametrize("pods", [601, 700])
def test_a_workload_has_all_pods_in_gangs_of_their_sizes(name: str, pods: int) -> None:
    workload = catalogue.workloads(pods, 10)[name]

    wires = list(workload.pod_objects())

    assert len({pod["metadata"]["name"] for pod in wires}) == pods
    groups = {
        (group["metadata"]["namespace"], group["metadata"]["name"]): group["spec"]["minMember"]
        for group in workload.pod_groups()
    }
    members = Counter(
        (pod["metadata"]["namespace"], *pod["metadata"]["annotations"].values())
        for pod in wires
        if "annotations" in pod["metadata"]
    )
    assert members == groups
    assert {pod["metadata"]["namespace"] for pod in wires} == set(workload.namespaces)


def test_each_gang_size_has_the_same_number_of_pods() -> None:
    workload = catalogue.workloads(6000, 10)["mixed-gangs"]

    sizes = Counter(group["spec"]["minMember"] for group in workload.pod_groups())

    pods = {size: size * count for size, count in sizes.items()}
    assert pods == dict.fromkeys((2, 10, 100), 2000)


def test_write_requests_and_their_event_writes_are_counted() -> None:
    assert Writes.of(METRICS) == Writes(26, 5)
    assert Writes.of(METRICS).since(Writes(20, 5)) == Writes(6, 0)


@pytest.mark.parametrize(
    ("pods_per_request", "gangs"), [(0, [1, 1, 1, 1]), (4, [2, 2]), (5, [2, 2]), (50, [4])]
)
def test_the_bare_client_puts_gangs_into_one_request_up_to_a_number_of_pods(
    pods_per_request: int, gangs: list[int]
) -> None:
    drafts = list(loaded(1, Workload(8, (2,))).cycle())

    requests = list(bareclient.bind_requests(drafts, pods_per_request))

    assert [len(request["spec"]["statements"]) for request in requests] == gangs


def test_bindery_is_compared_with_the_better_of_two_settings() -> None:
    measured = {each.name: each for each in summary.of_races(RACES)}

    better = measured["gangs: Bindery against kube-scheduler at its better setting"]
    assert (better.value, better.baseline, results.is_reached(better)) == (95, 60, True)
    alone = measured["gangs: Bindery against a bare client, a request a gang"]
    assert (alone.ratio, results.is_reached(alone)) == (1.188, True)
    shared = measured["gangs: Bindery against a bare client, 50 pods a request"]
    assert (shared.baseline, results.is_reached(shared)) == (110, True)
    own = measured["gangs: own CPU, Bindery against a bare client, a request a gang"]
    assert (own.value, own.baseline, results.is_reached(own)) == (1.5, 1.0, True)


def test_every_target_of_the_races_is_of_a_measured_value() -> None:
    everything = {name: standing(100) for name in catalogue.contenders()}
    measured = {each.name for each in summary.of_races(everything)}

    bars = {name for name in results.TO_REACH if name.startswith(("gangs", "single pods"))}
    assert bars
    assert bars <= measured


def test_each_race_is_a_row_with_its_measured_costs() -> None:
    rows = racetable.rows(list(summary.of_races(RACES)))

    assert rows[0] == ("race", *racetable.Column)
    assert rows[1] == ("gangs/bindery", "95", "0.1", "5.5", "3", "1.5", "1.2", "0.05")
    assert len(rows) == 1 + len(RACES)


def test_the_report_has_a_table_of_the_races(tmp_path: Path) -> None:
    source, document = tmp_path / "bench.json", tmp_path / "races.md"
    results.write(source, list(summary.of_races(RACES)))
    sections = (report.NUMBERS, report.RACES)
    old = [f"<!-- {name}: begin -->\nold {name}\n<!-- {name}: end -->\n" for name in sections]
    document.write_text("".join(old), encoding="utf-8")

    report.main(source, folder=tmp_path)

    text = document.read_text(encoding="utf-8")
    assert "| gangs/bindery | 95 | 0.1 | 5.5 | 3 | 1.5 | 1.2 | 0.05 |" in text
    assert "old" not in text


@pytest.mark.e2e
@pytest.mark.timeout(900)
@pytest.mark.long("a benchmark")
async def test_every_kind_of_contender_binds_all_pods_at_a_small_size() -> None:
    names = (
        "namespaces/bindery",
        "mixed-gangs/bare-client-50-pods",
        "gangs/bindings-alone",
        "gangs/kube-scheduler-10-percent",
    )
    contenders = catalogue.contenders()
    workloads = catalogue.workloads(120, 10)
    writes: dict[str, Writes] = {}
    with tempfile.TemporaryDirectory() as directory:
        async with open_cluster(Path(directory), 20, print) as cluster:
            for name in names:
                workload: Workload = workloads[name.partition("/")[0]]
                lap = await race(cluster, contenders[name](), workload)
                writes[name] = lap.writes

    assert all(count.all >= 120 for count in writes.values())
    assert writes["gangs/kube-scheduler-10-percent"].events >= 120
    assert writes["gangs/bindings-alone"].events == 0
    assert writes["gangs/bindings-alone"].all < writes["namespaces/bindery"].all
