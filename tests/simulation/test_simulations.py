"""Simulations: results computed by hand, ends, evictions, and reproducible reports."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bindery.api.configuration import SchedulerConfiguration
from bindery.scheduler.insight.shares import cluster_shares
from bindery.simulation.comparison import compare
from bindery.simulation.load import compressed, packed
from bindery.simulation.manifests import read_manifests, read_snapshot
from bindery.simulation.openb import read_trace
from bindery.simulation.player import Settings, play
from bindery.simulation.record import Record
from bindery.simulation.report import make_report
from bindery.simulation.trace import Trace
from tests.inlinescenarios import scenario_of, source_of
from tests.simulation.tracefiles import TINY, task, write_trace

SETTINGS = Settings()
TWO_GPUS = "n,8000,8192,2,A10\n"
WINDOW_S = SchedulerConfiguration().min_cycle_seconds


def played(trace: Trace, settings: Settings = SETTINGS) -> Record:
    return play(trace, SchedulerConfiguration(), settings)


def waits(record: Record) -> dict[str, float | None]:
    return {
        key.name: None if job.started_s is None else job.started_s - job.submitted_s
        for key, job in record.jobs.items()
    }


def test_jobs_wait_until_others_have_ended(tmp_path: Path) -> None:
    rows = task("a", gpus=2, until=100), task("b", at=10, until=60), task("c", milli=500, at=20)
    record = played(read_trace(write_trace(tmp_path, TWO_GPUS, "".join(rows))))

    # A cycle begins a moment after each change: `a` ends at 100 s and one moment.
    assert waits(record) == pytest.approx(
        {"a": WINDOW_S, "b": 90 + 2 * WINDOW_S, "c": 80 + 2 * WINDOW_S}
    )
    assert record.jobs.keys() == {key for key in record.jobs if not key.is_group}
    ends = {key.name: job.ended_s for key, job in record.jobs.items()}
    assert ends == {
        "a": pytest.approx(100 + WINDOW_S),
        "b": pytest.approx(150 + 2 * WINDOW_S),
        "c": None,
    }


def test_allocation_is_the_mean_over_time(tmp_path: Path) -> None:
    rows = task("a", gpus=2, until=100), task("b", at=10, until=110)
    report = make_report(played(read_trace(write_trace(tmp_path, TWO_GPUS, "".join(rows)))))

    # Two GPUs for the first 100 s, then one for 100 s, of two.
    assert report.allocation.gpu_mean == pytest.approx(0.75, abs=0.001)
    assert (report.allocation.gpu_peak, report.allocation.gpu_at_end) == (1.0, 0.0)
    assert report.span_s == pytest.approx(200 + 3 * WINDOW_S)


def test_gpus_are_counted_as_in_the_overview_of_queues(tmp_path: Path) -> None:
    """Cards of HAMi as cards, not as shares; devices of claims; no foreign pods."""
    text = """
    nodes:
    - {name: whole, gpus: 8}
    - {name: shared, gpuMemory: 10000, devices: [{shares: 10}, {shares: 10}]}
    - {name: claimed}
    - {name: away, gpus: 4, ready: false}
    deviceClasses:
    - {apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu.nvidia.com}}
    resourceSlices:
    - apiVersion: resource.k8s.io/v1
      kind: ResourceSlice
      metadata: {name: s}
      spec:
        driver: gpu.nvidia.com
        nodeName: claimed
        pool: {name: claimed, generation: 1, resourceSliceCount: 1}
        devices: [{name: gpu-0}, {name: gpu-1}, {name: gpu-2}]
    resourceClaimTemplates:
    - apiVersion: resource.k8s.io/v1
      kind: ResourceClaimTemplate
      metadata: {name: one}
      spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
    jobs:
    - {name: a, pods: [{gpus: 2}]}
    - {name: b, pods: [{gpuMemory: 2500}]}
    - {name: c, pods: [{claims: [one]}]}
    - {name: others, pods: [{gpus: 1, state: Running, node: whole, schedulerName: theirs}]}
    """
    scenario = scenario_of(text)
    with source_of(scenario).world().engine.session() as session:
        shown = cluster_shares(session).total["gpu"]
    path = tmp_path / "snapshot.yaml"
    path.write_text(text)

    trace, _ = read_snapshot(path)
    record = played(trace, replace(SETTINGS, until_s=60.0))

    assert (shown, record.capacity_gpus, trace.capacity_gpus) == (12.0, 12.0, 12.0)
    assert record.samples[-1].gpus == 2 + 0.25 + 1


def test_a_gang_starts_whole_and_is_one_job() -> None:
    record = played(read_trace(TINY))

    gang = next(job for key, job in record.jobs.items() if key.name == "train")
    assert (gang.queue, gang.pods, gang.gpus) == ("vision", 2, 4.0)
    assert sorted(gang.nodes.values()) == ["alpha", "beta"]
    assert gang.started_s == pytest.approx(WINDOW_S)


def test_gpu_models_and_queues_of_the_trace_are_kept() -> None:
    record = played(read_trace(TINY))

    nodes = {name: node for job in record.jobs.values() for name, node in job.nodes.items()}
    assert nodes["notebook"] == "alpha"
    assert nodes["report"] == "gamma"
    report = make_report(record)
    assert [waiting.group for waiting in report.waiting_by_queue] == ["default", "speech", "vision"]
    assert [waiting.group for waiting in report.waiting_by_size] == [
        *("no GPU", "part of a GPU", "1 GPU", "2-7 GPUs")
    ]


def test_a_gpu_share_fragments_its_gpu_for_requests_for_whole_gpus(tmp_path: Path) -> None:
    """One of two equally frequent kinds cannot use the rest of a shared GPU."""
    rows = [task(f"whole{n}") for n in range(2)] + [task(f"part{n}", milli=600) for n in range(2)]
    trace = read_trace(write_trace(tmp_path, "n,8000,8192,4,A10\n", "".join(rows)))

    report = make_report(played(trace))

    # Two GPUs have 0.4 left, which neither kind can use.
    assert report.fragmentation.at_end == pytest.approx(0.8 / 4)


def test_an_evicted_pod_ends_after_its_grace_period_and_starts_again(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(PREEMPTION)
    trace, scenario = read_snapshot(tmp_path / "cluster.yaml")

    record = play(trace, scenario.config.to_configuration(), Settings(grace_s=20.0))

    (eviction,) = record.evictions
    assert (eviction.action, eviction.queue) == ("preempt", "default")
    job = {key.name: each for key, each in record.jobs.items()}
    assert job["low"].evictions == 1
    assert job["high"].started_s == pytest.approx(20 + 2 * WINDOW_S)
    # The high job runs 100 s, then the low one starts again.
    assert job["low"].ended_s is None
    assert record.samples[-1].gpus == 1.0


PREEMPTION = """
name: one evicts the other
queues: [{name: default, gpu: {quota: 1}}]
nodes: [{name: n, cpu: "8", memory: 8Gi, gpus: 1}]
jobs:
  - {name: low, queue: default, priority: 10, pods: [{gpus: 1, state: Running, node: n}]}
  - {name: high, queue: default, priority: 50, expectedRuntime: 100, pods: [{gpus: 1}]}
"""


def test_manifests_arrive_at_their_creation_times(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(MANIFEST_NODE)
    (tmp_path / "jobs.yaml").write_text(MANIFEST_JOBS)

    record = played(read_manifests(tmp_path))

    assert waits(record) == pytest.approx({"first": WINDOW_S, "second": 30 + 2 * WINDOW_S})
    submitted = {key.name: job.submitted_s for key, job in record.jobs.items()}
    assert submitted == {"first": 0.0, "second": 30.0}


MANIFEST_NODE = """
apiVersion: v1
kind: Node
metadata: {name: n}
status:
  allocatable: {cpu: 8, memory: 8Gi, pods: 110, nvidia.com/gpu: 1}
  conditions: [{type: Ready, status: "True"}]
"""
MANIFEST_JOBS = """
apiVersion: v1
kind: Pod
metadata:
  name: first
  creationTimestamp: 2026-01-01T00:00:00Z
  annotations: {scheduling.bindery.dev/expected-runtime-seconds: "60"}
spec:
  schedulerName: bindery
  containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: second, creationTimestamp: "2026-01-01T00:00:30Z"}
spec:
  schedulerName: bindery
  containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_gives_the_same_report(seed: int) -> None:
    def report() -> bytes:
        return msgspec.json.encode(make_report(played(compressed(read_trace(TINY), 3.0, seed))))

    assert report() == report()


def test_packing_starts_only_jobs_that_fit() -> None:
    trace = packed(read_trace(TINY), 2.0, seed=3)

    report = make_report(played(trace, Settings(window_s=10.0)))

    assert report.started_jobs < report.jobs
    assert report.ended_jobs == 0
    assert report.allocation.gpu_at_end == report.allocation.gpu_peak <= 1.0


def test_a_simulation_ends_at_the_given_time() -> None:
    record = played(read_trace(TINY), Settings(until_s=50.0))

    assert record.end_s == 50.0
    assert all(job.ended_s is None for job in record.jobs.values())


def test_a_comparison_lists_the_jobs_that_change(tmp_path: Path) -> None:
    rows = task("small", until=100), task("large", gpus=2, at=1), task("late", at=2, until=10)
    trace = read_trace(write_trace(tmp_path, TWO_GPUS, "".join(rows)))
    first = played(trace)
    second = play(trace, SchedulerConfiguration(actions=("allocate",)))

    found = compare(first, second)

    assert found.same + found.earlier + found.later + found.only_first + found.only_second == 3
    assert compare(first, first).same == 3
    assert compare(first, first).changes == ()
