"""The report of a simulation: summaries of its record, and series over time for charts.

Pure. Nothing in a report depends on the machine or on the time of day, so equal records have equal
reports. Means over time weigh each sample by the time until the next one.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from bindery.simulation.record import FragmentationSample, JobRecord, QueueSample, Record, Sample

_MOST_POINTS: Final = 400
"""Points of a series; of more samples, the last of each interval is shown."""
SIZES: Final = (
    ("no GPU", 0.0),
    ("part of a GPU", 1.0),
    ("1 GPU", 2.0),
    ("2-7 GPUs", 8.0),
    ("8-63 GPUs", 64.0),
    ("64 GPUs or more", float("inf")),
)
"""Sizes of jobs, each with the number of GPUs that it stays below; the first has none at all."""


@dataclass(frozen=True)
class AllocatedShares:
    """Allocated amounts, as shares of the cluster from 0 to 1."""

    gpu_at_end: float
    gpu_mean: float
    """Over time."""
    gpu_peak: float
    cpu_at_end: float
    cpu_mean: float


@dataclass(frozen=True)
class Fragmentation:
    """GPUs that are free and that the typical pod cannot use, as shares of all GPUs."""

    at_end: float
    mean: float
    """Over time."""
    peak: float


@dataclass(frozen=True)
class WaitingTimes:
    """How long the jobs of a group waited from their submission to their start, in seconds."""

    group: str
    jobs: int
    started: int
    median_s: float | None
    """Of the jobs that started; None if none did."""
    p95_s: float | None
    longest_s: float | None
    mean_of_others_s: float | None
    """How long the jobs that never started have waited at the end, on average."""


@dataclass(frozen=True)
class QueueFairness:
    """GPUs of a queue, as means over time."""

    queue: str
    held: float
    requested: float
    fair: float
    """Fair share."""
    missing: float
    """GPUs below the fair share, or below the request if that is smaller."""


@dataclass(frozen=True)
class Evictions:
    """The evictions of one action in one queue."""

    action: str
    queue: str
    pods: int
    moved: int
    """Pods with another node in the same plan."""
    lost_gpu_hours: float
    """Work of the evicted pods since their binding."""


@dataclass(frozen=True)
class Point:
    """The cluster at one time, for charts."""

    at_s: float
    gpus: float
    requested_gpus: float
    waiting_pods: int
    held: dict[str, float]
    """Queue -> GPUs."""
    fair: dict[str, float]
    """Queue -> fair share in GPUs."""


@dataclass(frozen=True)
class Report:
    """All results of one simulation."""

    trace: str
    nodes: int
    gpus: float
    jobs: int
    pods: int
    started_jobs: int
    ended_jobs: int
    span_s: float
    """Virtual time from the start to the last event."""
    cycles: int
    allocation: AllocatedShares
    fragmentation: Fragmentation
    waiting_by_queue: tuple[WaitingTimes, ...]
    waiting_by_size: tuple[WaitingTimes, ...]
    fairness: tuple[QueueFairness, ...]
    fairness_index: float | None
    """Jain's index of the held GPUs of queues divided by their fair shares; 1 is fair. None if no
    two queues requested GPUs at the same time."""
    evictions: tuple[Evictions, ...]
    series: tuple[Point, ...]
    fragmentation_series: tuple[FragmentationSample, ...]
    problems: dict[str, str]


def make_report(record: Record) -> Report:
    """Return the report of `record`."""
    jobs = list(record.jobs.values())
    samples = record.samples
    gpus, cpu = max(record.capacity_gpus, 1.0), max(record.capacity_cpu, 1.0)
    last = samples[-1] if samples else None
    lost = [each.gpus for each in record.fragmentation]
    return Report(
        trace=record.trace,
        nodes=record.nodes,
        gpus=record.capacity_gpus,
        jobs=len(jobs),
        pods=sum(job.pods for job in jobs),
        started_jobs=sum(job.started_s is not None for job in jobs),
        ended_jobs=sum(job.ended_s is not None for job in jobs),
        span_s=record.end_s,
        cycles=record.cycles,
        allocation=AllocatedShares(
            gpu_at_end=last.gpus / gpus if last else 0.0,
            gpu_mean=_mean(record, lambda sample: sample.gpus) / gpus,
            gpu_peak=max((sample.gpus for sample in samples), default=0.0) / gpus,
            cpu_at_end=last.cpu / cpu if last else 0.0,
            cpu_mean=_mean(record, lambda sample: sample.cpu) / cpu,
        ),
        fragmentation=Fragmentation(
            at_end=(lost[-1] if lost else 0.0) / gpus,
            mean=sum(lost) / max(len(lost), 1) / gpus,
            peak=max(lost, default=0.0) / gpus,
        ),
        waiting_by_queue=tuple(_by_queue(jobs, record.end_s)),
        waiting_by_size=tuple(_by_size(jobs, record.end_s)),
        fairness=tuple(_fairness(record)),
        fairness_index=_index(record),
        evictions=tuple(_evictions(record)),
        series=tuple(_points(samples)),
        fragmentation_series=tuple(record.fragmentation),
        problems=record.problems,
    )


def size_of(gpus: float) -> str:
    """Return the name of the size of a job with `gpus` GPUs."""
    if gpus <= 0:
        return SIZES[0][0]
    return next(name for name, below in SIZES[1:] if gpus < below)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of `values` that at least `share` (0 to 1) of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _by_queue(jobs: Sequence[JobRecord], end_s: float) -> Iterable[WaitingTimes]:
    for name in sorted({job.queue for job in jobs}):
        yield _waiting(name, [job for job in jobs if job.queue == name], end_s)


def _by_size(jobs: Sequence[JobRecord], end_s: float) -> Iterable[WaitingTimes]:
    for name, _ in SIZES:
        found = [job for job in jobs if size_of(job.gpus) == name]
        if found:
            yield _waiting(name, found, end_s)


def _waiting(group: str, jobs: Sequence[JobRecord], end_s: float) -> WaitingTimes:
    waits = [job.started_s - job.submitted_s for job in jobs if job.started_s is not None]
    others = [end_s - job.submitted_s for job in jobs if job.started_s is None]
    return WaitingTimes(
        group=group,
        jobs=len(jobs),
        started=len(waits),
        median_s=median(waits) if waits else None,
        p95_s=percentile(waits, 0.95) if waits else None,
        longest_s=max(waits, default=None),
        mean_of_others_s=sum(others) / len(others) if others else None,
    )


def _fairness(record: Record) -> Iterable[QueueFairness]:
    for name in _queues(record):

        def over_time(value: Callable[[QueueSample], float], queue: str = name) -> float:
            def of(sample: Sample) -> float:
                return value(sample.queues[queue]) if queue in sample.queues else 0.0

            return _mean(record, of)

        yield QueueFairness(
            queue=name,
            held=over_time(lambda queue: queue.held),
            requested=over_time(lambda queue: queue.requested),
            fair=over_time(lambda queue: queue.fair),
            missing=over_time(_missing),
        )


def _missing(queue: QueueSample) -> float:
    return max(0.0, min(queue.fair, queue.requested) - queue.held)


def _index(record: Record) -> float | None:
    """Return the mean of Jain's index over the time in which two queues or more request GPUs."""
    total = weighted = 0.0
    for sample, seconds in _spans(record):
        parts = [
            min(1.0, queue.held / min(queue.fair, queue.requested))
            for queue in sample.queues.values()
            if queue.fair > 0 and queue.requested > 0
        ]
        squares = sum(part * part for part in parts)
        if len(parts) > 1 and squares:
            weighted += seconds * sum(parts) ** 2 / (len(parts) * squares)
            total += seconds
    return weighted / total if total else None


def _evictions(record: Record) -> Iterable[Evictions]:
    for action, queue in sorted({(each.action, each.queue) for each in record.evictions}):
        found = [e for e in record.evictions if (e.action, e.queue) == (action, queue)]
        yield Evictions(
            action=action,
            queue=queue,
            pods=len(found),
            moved=sum(each.is_moved for each in found),
            lost_gpu_hours=sum(each.lost_gpu_s for each in found) / 3600,
        )


def _points(samples: Sequence[Sample]) -> Iterable[Point]:
    step = max(1, -(-len(samples) // _MOST_POINTS))
    for sample in samples[::-1][::step][::-1]:
        queues = sample.queues.items()
        yield Point(
            at_s=sample.at_s,
            gpus=sample.gpus,
            requested_gpus=sum(queue.requested for _, queue in queues),
            waiting_pods=sample.waiting_pods,
            held={name: queue.held for name, queue in queues},
            fair={name: queue.fair for name, queue in queues},
        )


def _queues(record: Record) -> list[str]:
    return sorted({name for sample in record.samples for name in sample.queues})


def _mean(record: Record, value: Callable[[Sample], float]) -> float:
    """Return the mean of `value` over the time of the record."""
    total = weighted = 0.0
    for sample, seconds in _spans(record):
        weighted += value(sample) * seconds
        total += seconds
    return weighted / total if total else 0.0


def _spans(record: Record) -> Iterable[tuple[Sample, float]]:
    """Yield each sample with the time that it holds."""
    for sample, following in pairwise(record.samples):
        yield sample, following.at_s - sample.at_s
    if record.samples:
        yield record.samples[-1], max(0.0, record.end_s - record.samples[-1].at_s)
