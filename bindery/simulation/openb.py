"""Read traces in the format of openb, Alibaba's trace of a GPU cluster: nodes.csv and pods.csv.

The columns are those of the folder `cluster-trace-gpu-v2023` of the repository alibaba/clusterdata.
A row of pods.csv is a task. Two more columns may be added: `queue`, and `gang`; tasks of one gang
become the pods of one PodGroup, which arrives with its last task.
"""

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bindery.api.gpushare import CONFIG_MAP_ANNOTATION, FRACTION_ANNOTATION
from bindery.api.names import (
    DEFAULT_QUEUE,
    GPU_MODEL_LABEL,
    GPU_RESOURCE,
    HOSTNAME_LABEL,
    POD_GROUP_ANNOTATION,
    QUEUE_LABEL,
    SCHEDULER_NAME,
)
from bindery.api.times import timestamp
from bindery.kube.objects.podgroups import PodGroup, PodGroupSpec
from bindery.kube.objects.podspec import (
    Affinity,
    Container,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    ResourceRequirements,
)
from bindery.kube.objects.queues import Queue, QueueResource, QueueSpec
from bindery.kube.objects.watched import (
    Condition,
    KubeObject,
    Meta,
    Node,
    NodeStatus,
    OwnerReference,
    Pod,
    PodStatus,
)
from bindery.simulation.trace import START_S, Arrival, Trace, TraceError

NODES: Final = "nodes.csv"
PODS: Final = "pods.csv"
NAMESPACE: Final = "openb"
_NODE_PODS: Final = "1000"
"""Pods that a node takes: the trace does not limit them."""
_NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS: Final = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec")
_WHOLE_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A row of nodes.csv."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A row of pods.csv."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    """Of each GPU."""
    models: tuple[str, ...]
    """Models of GPU that it accepts; all if empty."""
    created_s: float = 0.0
    runtime_s: float = math.inf
    queue: str = DEFAULT_QUEUE
    gang: str = ""

    @property
    def total_milli(self) -> int:
        """Milli GPUs of all its GPUs together."""
        return self.gpus * self.gpu_milli


def is_openb(path: Path) -> bool:
    """Return whether `path` is a folder with a trace in this format."""
    return (path / PODS).is_file() or (path / NODES).is_file()


def read_trace(folder: Path) -> Trace:
    """Return the trace in `folder`.

    Raises:
        TraceError: a file is missing or malformed; the message has its line and column.
    """
    nodes = [node_object(row) for row in read_nodes(folder / NODES)]
    tasks = read_tasks(folder / PODS)
    names = sorted({task.queue for task in tasks} - {DEFAULT_QUEUE})
    queues = [queue_object(name) for name in names]
    beginning: tuple[KubeObject, ...] = (*queues, *nodes)
    return Trace(folder.name or str(folder), beginning, arrivals_of(tasks))


# -- rows --------------------------------------------------------------------------------------


def read_nodes(path: Path) -> list[NodeRow]:
    """Return the rows of nodes.csv.

    Raises:
        TraceError: the file is missing or malformed.
    """
    found = [
        NodeRow(
            name=row.text("sn"),
            cpu_milli=row.count("cpu_milli"),
            memory_mib=row.count("memory_mib"),
            gpus=row.count("gpu"),
            model=row.optional("model"),
        )
        for row in _rows(path, _NODE_COLUMNS, "sn")
    ]
    if not found:
        raise TraceError(f"{path}:1: it has no nodes")
    return found


def read_tasks(path: Path) -> list[TaskRow]:
    """Return the rows of pods.csv, in the order of the file; rows without a name are numbered.

    Raises:
        TraceError: the file is missing or malformed.
    """
    return [_task(row) for row in _rows(path, _POD_COLUMNS, "name")]


@dataclass(frozen=True)
class _Row:
    """A row of a file, with its place for errors."""

    path: Path
    line: int
    number: int
    values: Mapping[str, str]
    columns: tuple[str, ...]

    def error(self, column: str, problem: str) -> TraceError:
        """Return an error at a column; the columns are counted from 1."""
        at = self.columns.index(column) + 1
        return TraceError(f"{self.path}:{self.line}:{at}: {column}: {problem}")

    def text(self, column: str) -> str:
        """Return a text that is not empty."""
        value = self.values[column]
        if not value:
            raise self.error(column, "it is empty")
        return value

    def optional(self, column: str) -> str:
        """Return a text; empty without the column."""
        return self.values.get(column, "")

    def count(self, column: str) -> int:
        """Return a whole number, 0 or more."""
        text = self.values[column]
        if not (text.isascii() and text.isdigit()):
            raise self.error(column, f"{text!r} is not a whole number of 0 or more")
        return int(text)

    def time(self, column: str) -> float | None:
        """Return a time in seconds; None without the column or without a value."""
        text = self.optional(column)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0:
            raise self.error(column, f"{text!r} is not a time in seconds of 0 or more")
        return value


def _rows(path: Path, needed: tuple[str, ...], key: str) -> Iterator[_Row]:
    """Yield the rows of the file at `path`; values of the column `key` must not repeat."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from error
    reader = csv.reader(text.splitlines())
    columns = tuple(next(reader, ()))
    missing = [name for name in needed if name not in columns]
    if missing:
        raise TraceError(f"{path}:1: the column {missing[0]} is missing")
    seen: dict[str, int] = {}
    try:
        for number, values in enumerate(reader):
            if not values:
                continue
            if len(values) != len(columns):
                text = f"{len(columns)} columns are expected, {len(values)} found"
                at = min(len(columns), len(values)) + 1
                raise TraceError(f"{path}:{reader.line_num}:{at}: {text}")
            wire = {name: value.strip() for name, value in zip(columns, values, strict=True)}
            row = _Row(path, reader.line_num, number, wire, columns)
            first = seen.setdefault(wire.get(key) or f"#{number}", row.line)
            if first != row.line:
                raise row.error(key, f"{wire[key]} is also in line {first}")
            yield row
    except csv.Error as error:
        raise TraceError(f"{path}:{reader.line_num}: {error}") from error


def _task(row: _Row) -> TaskRow:
    gpus, milli = row.count("num_gpu"), row.count("gpu_milli")
    if gpus and not 0 < milli <= _WHOLE_MILLI:
        raise row.error("gpu_milli", f"{milli} is not from 1 to {_WHOLE_MILLI}")
    if gpus > 1 and milli != _WHOLE_MILLI:
        raise row.error("gpu_milli", f"several GPUs are always whole: {_WHOLE_MILLI}, not {milli}")
    created_s, deleted_s = row.time("creation_time"), row.time("deletion_time")
    runtime_s = math.inf
    if created_s is not None and deleted_s is not None:
        started_s = row.time("scheduled_time")
        runtime_s = deleted_s - (created_s if started_s is None else started_s)
        if runtime_s < 0:
            raise row.error("deletion_time", "the task is deleted before it starts")
    return TaskRow(
        name=row.optional("name") or f"task-{row.number:05}",
        cpu_milli=row.count("cpu_milli"),
        memory_mib=row.count("memory_mib"),
        gpus=gpus,
        gpu_milli=milli if gpus else 0,
        models=tuple(filter(None, row.optional("gpu_spec").split("|"))),
        created_s=created_s or 0.0,
        runtime_s=runtime_s,
        queue=row.optional("queue") or DEFAULT_QUEUE,
        gang=row.optional("gang"),
    )


# -- objects -----------------------------------------------------------------------------------


def node_object(row: NodeRow, name: str = "") -> Node:
    """Return the Node of `row`, named `name` if given."""
    name = name or row.name
    labels = {HOSTNAME_LABEL: name}
    amounts = {
        "cpu": f"{row.cpu_milli}m",
        "memory": f"{row.memory_mib}Mi",
        "pods": _NODE_PODS,
    }
    if row.gpus:
        amounts[GPU_RESOURCE] = str(row.gpus)
    if row.model:
        labels[GPU_MODEL_LABEL] = row.model
    return Node(
        metadata=Meta(
            name=name,
            uid=f"node-{name}",
            creation_timestamp=timestamp(START_S),
            labels=labels,
        ),
        status=NodeStatus(allocatable=amounts, conditions=[Condition(type="Ready", status="True")]),
    )


def queue_object(name: str) -> Queue:
    """Return a Queue without quota and with weight 1 for GPUs."""
    return Queue(
        metadata=Meta(name=name, uid=f"queue-{name}", creation_timestamp=timestamp(START_S)),
        spec=QueueSpec(resources={"gpu": QueueResource(quota=0, over_quota_weight=1)}),
    )


def pod_object(row: TaskRow, name: str, created_s: float) -> Pod:
    """Return the Pod of `row`; `created_s`: seconds since the epoch."""
    requests = {"cpu": f"{row.cpu_milli}m", "memory": f"{row.memory_mib}Mi"}
    annotations, labels = {}, {}
    if row.gpus and row.gpu_milli < _WHOLE_MILLI:
        annotations[FRACTION_ANNOTATION] = f"0.{row.gpu_milli:03}"
        annotations[CONFIG_MAP_ANNOTATION] = f"{name}-shared-gpu"  # as the webhook leaves it
    elif row.gpus:
        requests[GPU_RESOURCE] = str(row.gpus)
    if row.gang:
        annotations[POD_GROUP_ANNOTATION] = row.gang
    elif row.queue != DEFAULT_QUEUE:
        labels[QUEUE_LABEL] = row.queue
    owner = row.gang or row.name
    return Pod(
        metadata=Meta(
            name=name,
            namespace=NAMESPACE,
            uid=f"pod-{name}",
            creation_timestamp=timestamp(created_s),
            annotations=annotations,
            labels=labels,
            owner_references=[
                OwnerReference(
                    api_version="batch/v1",
                    kind="Job",
                    name=owner,
                    uid=f"job-{owner}",
                    controller=True,
                )
            ],
        ),
        spec=PodSpec(
            scheduler_name=SCHEDULER_NAME,
            priority=0,
            containers=[
                Container(
                    name="main",
                    resources=ResourceRequirements(requests=requests, limits=requests),
                )
            ],
            affinity=_on_models(row.models) if row.models else None,
        ),
        status=PodStatus(phase="Pending"),
    )


def _on_models(models: tuple[str, ...]) -> Affinity:
    one_of = NodeSelectorRequirement(key=GPU_MODEL_LABEL, operator="In", values=list(models))
    terms = [NodeSelectorTerm(match_expressions=[one_of])]
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=terms)))


def arrivals_of(tasks: list[TaskRow]) -> tuple[Arrival, ...]:
    """Return the arrivals of `tasks` by time; the first task arrives at 0."""
    first_s = min((task.created_s for task in tasks), default=0.0)
    jobs: dict[str, list[TaskRow]] = {}
    for number, task in enumerate(tasks):
        jobs.setdefault(f"gang/{task.gang}" if task.gang else f"task/{number}", []).append(task)
    found = [_arrival(members, first_s) for members in jobs.values()]
    return tuple(sorted(found, key=lambda arrival: arrival.at_s))


def _arrival(members: list[TaskRow], first_s: float) -> Arrival:
    at_s = max(task.created_s for task in members) - first_s
    created_s = START_S + at_s
    first = members[0]
    group = None
    if first.gang:
        group = PodGroup(
            metadata=Meta(
                name=first.gang,
                namespace=NAMESPACE,
                uid=f"podgroup-{first.gang}",
                creation_timestamp=timestamp(created_s),
            ),
            spec=PodGroupSpec(min_member=len(members), queue=first.queue),
        )
    return Arrival(
        at_s=at_s,
        pods=tuple(pod_object(task, task.name, created_s) for task in members),
        group=group,
        runtime_s=max(task.runtime_s for task in members),
        gpus=sum(task.total_milli for task in members) / _WHOLE_MILLI,
    )
