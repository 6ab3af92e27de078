"""Read traces from manifests and scenarios.

A folder of manifests is a trace: workloads arrive at the creation times in their metadata, those
without one at the start. A scenario, such as `bindery snapshot` writes, is a cluster at the start;
its waiting jobs wait from then on.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bindery.api.times import seconds
from bindery.api.yamlfile import read
from bindery.kube.objects.membership import Claims
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import KubeObject, Node, Pod
from bindery.scenario.creation import snapshot_of
from bindery.scenario.files import read_only_scenario, scenario_files
from bindery.scenario.format import Scenario
from bindery.scenario.manifests import Surroundings, read_documents
from bindery.scheduler.cache.members import job_key
from bindery.scheduler.cache.reading import runtime_of
from bindery.scheduler.model.jobs import JobKey
from bindery.simulation.trace import START_S, Arrival, GpuReader, Trace, TraceError

_NAMESPACE: Final = "default"


def read_manifests(folder: Path) -> Trace:
    """Return the trace of all manifests in `folder` and the folders in it.

    Raises:
        FileError: a manifest cannot be used.
        TraceError: there are no nodes.
    """
    documents = [each for file in scenario_files(folder) for each in read(file)]
    if not documents:
        raise TraceError(f"{folder}: its files are empty")
    start = datetime.fromtimestamp(START_S, UTC)
    around = Surroundings(ClusterSnapshot(), _NAMESPACE, start, keeps_times=True)
    submission = read_documents(documents, around)
    # Pods of later stages are there from the start.
    objects = [*submission.objects, *(arrival.pod for arrival in submission.arrivals)]
    if not any(isinstance(item, Node) for item in objects):
        raise TraceError(f"{folder}: it has no manifests of nodes")
    jobs = _jobs(objects)
    present = {key for key, items in jobs.items() if any(map(_is_bound, items))}
    arriving = {key: items for key, items in jobs.items() if key not in present}
    started = min(map(_created, _flat(arriving.values())), default=START_S)
    found = [_arrival(items, started) for items in arriving.values()]
    left = {id(item) for item in _flat(arriving.values())}
    return Trace(
        name=folder.name or str(folder),
        beginning=tuple(item for item in objects if id(item) not in left),
        arrivals=tuple(sorted((a for a in found if a.pods), key=lambda arrival: arrival.at_s)),
        start_s=started,
        passed_over=submission.passed_over,
    )


def read_snapshot(path: Path) -> tuple[Trace, Scenario]:
    """Return the only scenario in the file at `path`, also as a trace.

    Raises:
        FileError: the file cannot be used.
    """
    scenario = read_only_scenario(path)
    beginning = snapshot_of(scenario).everything()
    return Trace(path.stem, beginning, (), scenario.now.timestamp()), scenario


def _jobs(objects: Iterable[KubeObject]) -> dict[JobKey, list[KubeObject]]:
    """Return the PodGroups and pods of `objects` by job."""
    jobs: defaultdict[JobKey, list[KubeObject]] = defaultdict(list)
    objects = list(objects)
    claims = Claims(item for item in objects if isinstance(item, PodGroup))
    for item in objects:
        if isinstance(item, PodGroup):
            jobs[JobKey(item.metadata.namespace, item.metadata.name, True)].append(item)
        elif isinstance(item, Pod):
            jobs[job_key(claims, item)].append(item)
    return dict(jobs)


def _arrival(items: list[KubeObject], started: float) -> Arrival:
    pods = tuple(item for item in items if isinstance(item, Pod))
    groups = [item for item in items if isinstance(item, PodGroup)]
    reader = GpuReader()
    runtimes = [runtime_of(pod) for pod in pods]
    runtimes += [
        group.spec.expected_runtime_seconds
        for group in groups
        if group.spec.expected_runtime_seconds
    ]
    return Arrival(
        at_s=max(map(_created, items)) - started,
        pods=pods,
        group=groups[0] if groups else None,
        runtime_s=min(runtimes, default=float("inf")),
        gpus=sum(reader.gpus(pod) for pod in pods),
    )


def _is_bound(item: KubeObject) -> bool:
    return isinstance(item, Pod) and bool(item.spec.node_name)


def _created(item: KubeObject) -> float:
    return seconds(item.metadata.creation_timestamp) or START_S


def _flat(lists: Iterable[list[KubeObject]]) -> Iterator[KubeObject]:
    return (item for items in lists for item in items)
