"""Builders of watched objects, and what a plan state looks like by names instead of rows."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from bindery.api import quantity
from bindery.api.configuration import (
    BindRequestConfiguration,
    PluginConfiguration,
    SchedulerConfiguration,
)
from bindery.api.names import (
    GPU_MODEL_LABEL,
    POD_GROUP_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    QUEUE_LABEL,
    ROLE_LABEL,
    SUB_GROUP_LABEL,
)
from bindery.kube import objects as kube
from bindery.kube import podspec
from bindery.kube.store import Change, EventType
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.commit import BindRequestDraft
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.jobs import Job, JobKey, Tally, TaskStatus, Uid
from bindery.scheduler.model.resources import MODEL_PREFIX, Request
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.placement import FilterCache
from bindery.scheduler.plugins.registry import PluginSet, load
from bindery.scheduler.reports import JobReport
from bindery.scheduler.session import Session

NOW = 1_750_000_000.0
NAMESPACE = "team"
GPU = "nvidia.com/gpu"

Amounts = Mapping[str, str | int]


# ---- objects ----------------------------------------------------------------------------------


def node(
    name: str,
    cpu: str | int = 8,
    gpu: int = 0,
    *,
    pods: int = 110,
    memory: str = "64Gi",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[kube.Taint] = (),
    ready: bool = True,
    unschedulable: bool = False,
    model: str | None = None,
    more: Amounts | None = None,
) -> kube.Node:
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, GPU: gpu, **(more or {})}
    status = "True" if ready else "False"
    return kube.Node(
        metadata=kube.Meta(
            name=name,
            uid=f"node-{name}",
            labels=({GPU_MODEL_LABEL: model} if model else {}) | dict(labels or {}),
        ),
        spec=kube.NodeSpec(taints=list(taints), unschedulable=unschedulable),
        status=kube.NodeStatus(
            allocatable={key: str(value) for key, value in amounts.items() if value != 0},
            conditions=[kube.Condition(type="Ready", status=status)],
        ),
    )


def requirements(amounts: Amounts) -> podspec.ResourceRequirements:
    return podspec.ResourceRequirements(
        requests={key: str(value) for key, value in amounts.items()}
    )


def pod(
    name: str,
    cpu: str | int = 1,
    gpu: int = 0,
    *,
    group: str | None = None,
    queue: str | None = None,
    uid: str | None = None,
    on: str = "",
    phase: str = "",
    deleting: str | None = None,
    gated: bool = False,
    scheduler: str = "bindery",
    priority: int | None = None,
    preemptible: bool | None = None,
    role: str = "",
    sub_group: str = "",
    namespace: str = NAMESPACE,
    labels: Mapping[str, str] | None = None,
    conditions: Sequence[kube.Condition] = (),
    more: Amounts | None = None,
    **spec: Any,
) -> kube.Pod:
    """Return a pod that asks for `cpu` and `gpu`; `spec`: further fields of its spec."""
    annotations = {POD_GROUP_ANNOTATION: group or ""}
    if preemptible is not None:
        annotations[PREEMPTIBLE_ANNOTATION] = str(preemptible).lower()
    said = {QUEUE_LABEL: queue, ROLE_LABEL: role, SUB_GROUP_LABEL: sub_group}
    amounts = {key: v for key, v in {"cpu": cpu, GPU: gpu, **(more or {})}.items() if v != 0}
    spec.setdefault("containers", [podspec.Container(resources=requirements(amounts))])
    return kube.Pod(
        metadata=kube.Meta(
            name=name,
            namespace=namespace,
            uid=uid or f"uid-{name}",
            deletion_timestamp=deleting,
            annotations={key: value for key, value in annotations.items() if value},
            labels={key: value for key, value in said.items() if value} | dict(labels or {}),
        ),
        spec=podspec.PodSpec(
            node_name=on,
            scheduler_name=scheduler,
            priority=priority,
            scheduling_gates=[podspec.SchedulingGate(name="wait")] if gated else None,
            **spec,
        ),
        status=kube.PodStatus(
            phase=phase or ("Running" if on else "Pending"), conditions=list(conditions)
        ),
    )


def group(
    name: str,
    minimum: int = 1,
    queue: str = "default",
    *,
    uid: str | None = None,
    created: str | None = None,
    priority_class: str | None = None,
    conditions: Sequence[kube.Condition] = (),
    **spec: Any,
) -> kube.PodGroup:
    """Return a PodGroup; `spec`: further fields of its spec."""
    return kube.PodGroup(
        metadata=kube.Meta(
            name=name,
            namespace=NAMESPACE,
            uid=uid or f"uid-group-{name}",
            creation_timestamp=created,
        ),
        spec=kube.PodGroupSpec(
            min_member=minimum, queue=queue, priority_class_name=priority_class, **spec
        ),
        status=kube.ConditionedStatus(conditions=list(conditions)),
    )


def gang(name: str, size: int, minimum: int | None = None, **shape: Any) -> list[kube.KubeObject]:
    """Return a PodGroup and its pods, all equal. `shape`: as for `pod`, and `queue`."""
    queue = shape.pop("queue", "default")
    members = [pod(f"{name}-{i}", group=name, **shape) for i in range(size)]
    return [group(name, size if minimum is None else minimum, queue), *members]


def queue(
    name: str,
    *,
    parent: str | None = None,
    priority: int = 100,
    state: str = "Open",
    conditions: Sequence[kube.Condition] = (),
    limits: Amounts | None = None,
    quotas: Amounts | None = None,
    **more_limits: int | str,
) -> kube.Queue:
    """Return a queue; `limits`, `more_limits` and `quotas`: by resource."""
    all_limits = {**(limits or {}), **more_limits}
    all_quotas = quotas or {}
    return kube.Queue(
        metadata=kube.Meta(name=name, uid=f"uid-queue-{name}"),
        spec=kube.QueueSpec(
            parent=parent,
            priority=priority,
            state=state,
            resources={
                key: kube.QueueResource(limit=all_limits.get(key, -1), quota=all_quotas.get(key))
                for key in {**all_limits, **all_quotas}
            },
        ),
        status=kube.QueueStatus(conditions=list(conditions)),
    )


def request(
    name: str,
    places: Mapping[str, str],
    *,
    phase: str = "Pending",
    bound: Sequence[str] = (),
    unbound: Sequence[kube.UnboundPod] = (),
    created: str | None = None,
    completed: str | None = None,
    group_name: str | None = None,
    part: int = 0,
    parts: int = 1,
    min_bound: int | None = None,
    after: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> kube.BindRequest:
    """Return a BindRequest; `places`: pod uid (`uid-NAME`) -> node."""
    return kube.BindRequest(
        metadata=kube.Meta(
            name=name,
            namespace=NAMESPACE,
            uid=f"uid-request-{name}",
            creation_timestamp=created,
            labels=dict(labels or {}),
        ),
        spec=kube.BindRequestSpec(
            pods=[
                kube.PodBinding(pod_name=uid.removeprefix("uid-"), pod_uid=uid, selected_node=place)
                for uid, place in places.items()
            ],
            statement=kube.StatementReference(id=f"{name}-1", part=part, parts=parts, after=after),
            pod_group=kube.PodGroupReference(name=group_name, uid=f"uid-group-{group_name}")
            if group_name
            else None,
            min_bound=min_bound,
        ),
        status=kube.BindRequestStatus(
            phase=phase,
            bound_pods=list(bound),
            unbound_pods=list(unbound),
            completion_time=completed,
        ),
    )


# ---- the engine -------------------------------------------------------------------------------


class Clock:
    """A clock that stands still until it is moved. Seconds since the epoch."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def configuration(
    plugins: Sequence[PluginConfiguration] | None = None,
    *,
    more_plugins: Sequence[str] = (),
    bind_request: Mapping[str, Any] | None = None,
    **fields: Any,
) -> SchedulerConfiguration:
    """Return the default configuration with some of it changed."""
    chosen = SchedulerConfiguration().plugins if plugins is None else tuple(plugins)
    return SchedulerConfiguration(
        plugins=(*chosen, *(PluginConfiguration(name=name) for name in more_plugins)),
        bind_request=BindRequestConfiguration(**(bind_request or {})),
        **fields,
    )


def add(cluster: Cluster, *items: kube.KubeObject) -> None:
    for item in items:
        cluster.apply(Change(EventType.ADDED, item, None))


def modify(cluster: Cluster, *items: kube.KubeObject) -> None:
    for item in items:
        cluster.apply(Change(EventType.MODIFIED, item, None))


def delete(cluster: Cluster, *items: kube.KubeObject) -> None:
    for item in items:
        cluster.apply(Change(EventType.DELETED, item, item))


def engine_with(*items: kube.KubeObject, clock: Clock | None = None, **fields: Any) -> Engine:
    """Return an engine that knows `items`; `fields`: as for `configuration`."""
    engine = Engine(configuration(**fields), clock or Clock())
    add(engine.cluster, *items)
    return engine


def session_of(cluster: Cluster, *more_plugins: Any) -> Session:
    """Return a session over `cluster` with the default plugins and `more_plugins` (objects)."""
    built_in = load(SchedulerConfiguration().plugins)
    plugins = PluginSet([*built_in.plugins, *more_plugins], built_in.seconds)
    return Session(cluster, plugins, FilterCache(), NOW)


def places(drafts: Iterable[BindRequestDraft]) -> dict[str, str]:
    """Return pod name -> node of all `drafts`."""
    return {pod.pod_name: pod.selected_node for draft in drafts for pod in draft.spec.pods}


def plan(engine: Engine) -> dict[str, str]:
    """Run one cycle; return pod name -> node."""
    return places(engine.cycle())


def report_of(engine: Engine, name: str) -> JobReport:
    """Return what the last cycle says of the job `name`, a PodGroup or a single pod."""
    (report,) = [report for key, report in engine.report.jobs.items() if key.name == name]
    return report


def as_created(draft: BindRequestDraft) -> kube.BindRequest:
    """Return the object that the watch shows once `draft` has been created."""
    spec = draft.spec
    return kube.BindRequest(
        metadata=kube.Meta(
            name=draft.name,
            namespace=draft.namespace,
            uid=f"created-{draft.name}",
            labels=dict(draft.labels),
        ),
        spec=kube.BindRequestSpec(
            pods=[
                kube.PodBinding(
                    pod_name=p.pod_name,
                    pod_uid=p.pod_uid,
                    selected_node=p.selected_node,
                    plugin_data=p.plugin_data,
                    received_resource_type=p.received_resource_type.value,
                    selected_gpu_groups=list(p.selected_gpu_groups),
                )
                for p in spec.pods
            ],
            statement=kube.StatementReference(
                id=spec.statement.id,
                part=spec.statement.part,
                parts=spec.statement.parts,
                after=spec.statement.after,
            ),
            pod_group=kube.PodGroupReference(name=spec.pod_group.name, uid=spec.pod_group.uid)
            if spec.pod_group
            else None,
            min_bound=spec.min_bound,
        ),
    )


# ---- what a state looks like ------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """A plan state by names, so that states whose rows differ can be compared."""

    nodes: dict[str, dict[str, tuple[int, ...]]]
    """Node -> resource -> allocatable, idle, releasing, pipelined, foreign; all-zero ones left out.
    """
    queues: dict[str, dict[str, tuple[int, ...]]]
    """Queue -> resource -> allocated, non-preemptible, pending; all-zero ones left out."""
    tasks: dict[str, tuple[TaskStatus, str, JobKey, str | None, bool]]
    """Pod uid -> status, node, job, queue (None: not ours), whether it may be evicted."""
    jobs: dict[JobKey, tuple[Any, ...]]
    """Job -> what its PodGroup says."""
    counts: dict[JobKey, tuple[Any, ...]]
    """Job -> its pods, those that are pending, tallies of the placed, promised and waiting ones,
    how many are gated."""
    waiting: frozenset[JobKey]


def view(state: PlanState) -> View:
    """Return `state` by names."""
    nodes, queues = state.nodes, state.queues
    node_columns = (nodes.allocatable, nodes.idle, nodes.releasing, nodes.pipelined, nodes.foreign)
    queue_columns = (queues.allocated, queues.non_preemptible, queues.pending)
    return View(
        nodes={name: _amounts(state, row, node_columns) for name, row in nodes.rows.items()},
        queues=_without_empty(
            {name: _amounts(state, row, queue_columns) for name, row in queues.rows.items()}
        ),
        tasks={
            uid: (
                task.status,
                task.node_name or (nodes.name(task.row) if task.row >= 0 else ""),
                task.job,
                queues.entries[task.queue_row].name if task.is_ours else None,
                task.is_preemptible,
            )
            for uid, task in state.tasks.items()
        },
        jobs={
            key: tuple(getattr(job, name) for name in _SAID_BY_THE_GROUP)
            for key, job in state.jobs.items()
        },
        counts={
            key: (
                frozenset(job.tasks),
                frozenset(job.pending),
                *(_tally(tally) for tally in (job.placed, job.promised, job.waiting)),
                job.gated_count,
            )
            for key, job in state.jobs.items()
        },
        waiting=frozenset(state.waiting),
    )


_COUNTED = ("tasks", "pending", "placed", "promised", "waiting", "gated_count")
_SAID_BY_THE_GROUP = [each.name for each in fields(Job) if each.name not in _COUNTED]


def _amounts(
    state: PlanState, row: int, columns: Sequence[IntColumns]
) -> dict[str, tuple[int, ...]]:
    """Return resource -> what each of `columns` says at `row`; all-zero ones left out."""
    amounts = {
        name: tuple(int(column[index, row]) for column in columns)
        for index, name in enumerate(state.axis.names)
    }
    return {name: values for name, values in amounts.items() if any(values)}


def _without_empty(
    by_name: dict[str, dict[str, tuple[int, ...]]],
) -> dict[str, dict[str, tuple[int, ...]]]:
    return {name: amounts for name, amounts in by_name.items() if amounts}


def _tally(tally: Tally) -> tuple[int, dict[str, int], dict[str, int]]:
    """Return the counts of `tally`: in all, by sub-group, by role; zeros left out."""
    by_group = {name: count for name, count in tally.groups.items() if count}
    by_role = {name: count for name, count in tally.roles.items() if count}
    return tally.total, by_group, by_role


def recount(state: PlanState) -> View:
    """Return the view that `state` should give, counted anew from its tasks' statuses alone."""
    now = view(state)
    return View(
        nodes=_recounted_nodes(state, now),
        queues=_recounted_queues(state, now),
        tasks=now.tasks,
        jobs=now.jobs,
        counts={key: _recounted_job(job, now) for key, job in state.jobs.items()},
        waiting=frozenset(
            key
            for key, job in state.jobs.items()
            if any(
                task.status in (TaskStatus.PENDING, TaskStatus.GATED) for task in job.tasks.values()
            )
        ),
    )


def _recounted_nodes(state: PlanState, now: View) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return what nodes hold: of a pod that a plan moves both places, as it holds the old one."""
    counted: dict[str, dict[str, list[int]]] = {}
    for name, row in state.nodes.rows.items():
        found = state.nodes.nodes[row]
        assert found is not None
        offered = {
            resource: quantity.parse(text, resource)
            for resource, text in (found.status.allocatable or {}).items()
        }
        counted[name] = {r: [offered.get(r, 0)] * 2 + [0, 0, 0] for r in state.axis.names}
    for uid, (status, place, _, queue_name, _) in now.tasks.items():
        task = state.tasks[Uid(uid)]
        moves = status is TaskStatus.PIPELINED and task.pod_status is TaskStatus.RUNNING
        promised = state.nodes.name(task.row) if status is TaskStatus.PIPELINED else ""
        held = task.pod_node if moves else place if status.holds_room else ""
        for resource, amount in _named(state.axis.names, task.shape.request):
            if held in counted:
                amounts = counted[held][resource]
                amounts[1] -= amount
                amounts[2] += amount if moves or status is TaskStatus.RELEASING else 0
                amounts[4] += amount if queue_name is None else 0
            if promised:
                counted[promised][resource][3] += amount
    return {
        name: {resource: tuple(values) for resource, values in amounts.items() if any(values)}
        for name, amounts in counted.items()
    }


def _recounted_queues(state: PlanState, now: View) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return what queues hold and are asked for; a promise is not held, and still asked for."""
    counted: dict[str, dict[str, list[int]]] = {}
    for uid, (status, place, _, queue_name, is_preemptible) in now.tasks.items():
        if queue_name is None:
            continue
        task = state.tasks[Uid(uid)]
        awaits = status is TaskStatus.PENDING or (
            status is TaskStatus.PIPELINED and task.pod_status is TaskStatus.PENDING
        )
        request = charged(state, task.shape.request, place if status.is_active else "")
        for resource, amount in request.items():
            of_queue = counted.setdefault(queue_name, {}).setdefault(resource, [0, 0, 0])
            of_queue[0] += amount if status.is_active else 0
            of_queue[1] += amount if status.is_active and not is_preemptible else 0
            of_queue[2] += amount if awaits else 0
    return _without_empty(
        {
            name: {resource: tuple(values) for resource, values in amounts.items() if any(values)}
            for name, amounts in counted.items()
        }
    )


def charged(state: PlanState, request: Request, place: str) -> dict[str, int]:
    """Return what a pod on the node `place` counts for in its queue: GPUs of its model too."""
    amounts = dict(_named(state.axis.names, request))
    row = state.nodes.rows.get(place)
    found = state.nodes.nodes[row] if row is not None else None
    model = found.metadata.labels.get(GPU_MODEL_LABEL) if found is not None else None
    if model and amounts.get(GPU):
        amounts[MODEL_PREFIX + model] = amounts[GPU]
    return amounts


def _recounted_job(job: Job, now: View) -> tuple[Any, ...]:
    statuses = {uid: task.status for uid, task in job.tasks.items()}
    placed = [u for u, s in statuses.items() if s.is_active or s is TaskStatus.SUCCEEDED]
    promised = [u for u, s in statuses.items() if s is TaskStatus.PIPELINED]
    waiting = [u for u, s in statuses.items() if s is TaskStatus.PENDING]
    return (
        frozenset(uid for uid, task in now.tasks.items() if task[2] == job.key and task[3]),
        frozenset(waiting),
        *(
            (
                len(uids),
                Counter(job.tasks[uid].sub_group for uid in uids if job.tasks[uid].sub_group),
                Counter(job.tasks[uid].role for uid in uids if job.tasks[uid].role),
            )
            for uids in (placed, promised, waiting)
        ),
        list(statuses.values()).count(TaskStatus.GATED),
    )


def _named(names: Sequence[str], request: Request) -> Iterable[tuple[str, int]]:
    return [(names[i], a) for i, a in zip(request.indices, request.amounts, strict=True)]
