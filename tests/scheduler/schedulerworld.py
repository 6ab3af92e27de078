"""Builders of watched objects, and engines that plan for them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bindery.api import preemptibility
from bindery.api.configuration import (
    BindRequestConfiguration,
    PluginConfiguration,
    SchedulerConfiguration,
)
from bindery.api.names import (
    CHARGED_GROUP_ANNOTATION,
    CHARGED_PREEMPTIBILITY_ANNOTATION,
    CHARGED_QUEUE_ANNOTATION,
    GPU_MODEL_LABEL,
    MADE_BY_GROUPER,
    MADE_BY_LABEL,
    POD_GROUP_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    QUEUE_LABEL,
    ROLE_LABEL,
    SUB_GROUP_LABEL,
)
from bindery.kube.objects import podspec
from bindery.kube.objects import watched as kube
from bindery.kube.objects.bindrequests import (
    BindRequest,
    BindRequestSpec,
    BindRequestStatus,
    CommittedStatement,
    PodBinding,
    PodGroupReference,
    StatementSpec,
    StatementStatus,
    UnboundPod,
)
from bindery.kube.objects.podgroups import PodGroup, PodGroupSpec, PodGroupStatus
from bindery.kube.objects.queues import Queue, QueueResource, QueueSpec, QueueStatus
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.feed import statement_changes
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.requests import as_stored
from bindery.scheduler.engine import Engine
from bindery.scheduler.planning.filter_cache import FilterCache
from bindery.scheduler.planning.reports import JobReport
from bindery.scheduler.planning.session import Session
from bindery.scheduler.plugins.registry import PluginSet, load

NOW = 1_750_000_000.0
NAMESPACE = "team"
GPU = "nvidia.com/gpu"
CONTROLLER = kube.OwnerReference(
    api_version="batch/v1", kind="Job", name="work", uid="uid-job-work", controller=True
)

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
    charged: str = "",
    charged_group: str = "",
    charged_preemptible: bool | None = None,
    conditions: Sequence[kube.Condition] = (),
    more: Amounts | None = None,
    controlled: bool = True,
    **spec: Any,
) -> kube.Pod:
    """Return a pod that asks for `cpu` and `gpu`; `spec`: further fields of its spec.

    `charged`: the queue in the record of the binder; `charged_preemptible`: the preemptibility in
    the same record. `controlled`: whether the pod has a controller, which replaces a deleted pod.
    """
    annotations = {POD_GROUP_ANNOTATION: group or "", CHARGED_QUEUE_ANNOTATION: charged}
    if charged and group:
        annotations[CHARGED_GROUP_ANNOTATION] = charged_group or f"uid-group-{group}"
    if charged_preemptible is not None:
        charged_as = preemptibility.word(charged_preemptible)
        annotations[CHARGED_PREEMPTIBILITY_ANNOTATION] = charged_as
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
            owner_references=[CONTROLLER] if controlled else [],
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
    charged: str = "",
    conditions: Sequence[kube.Condition] = (),
    **spec: Any,
) -> PodGroup:
    """Return a PodGroup; `spec`: further fields of its spec, `charged`: the queue in its status."""
    return PodGroup(
        metadata=kube.Meta(
            name=name,
            namespace=NAMESPACE,
            uid=uid or f"uid-group-{name}",
            creation_timestamp=created,
        ),
        spec=PodGroupSpec(
            min_member=minimum, queue=queue, priority_class_name=priority_class, **spec
        ),
        status=PodGroupStatus(queue=charged, conditions=list(conditions)),
    )


def group_of_job(name: str, minimum: int = 1) -> PodGroup:
    """Return the PodGroup that the grouper makes for the Job `name`: job-NAME-f3ba2458."""
    made = group(f"job-{name}-f3ba2458", minimum)
    owner = kube.OwnerReference(
        api_version="batch/v1", kind="Job", name=name, uid="f3ba2458-2f6c-4bd0"
    )
    labels = {MADE_BY_LABEL: MADE_BY_GROUPER}
    meta = replace(made.metadata, labels=labels, owner_references=[owner])
    return replace(made, metadata=meta)


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
) -> Queue:
    """Return a queue; `limits`, `more_limits` and `quotas`: by resource."""
    all_limits = {**(limits or {}), **more_limits}
    all_quotas = quotas or {}
    return Queue(
        metadata=kube.Meta(name=name, uid=f"uid-queue-{name}"),
        spec=QueueSpec(
            parent=parent,
            priority=priority,
            state=state,
            resources={
                key: QueueResource(limit=all_limits.get(key, -1), quota=all_quotas.get(key))
                for key in {**all_limits, **all_quotas}
            },
        ),
        status=QueueStatus(conditions=list(conditions)),
    )


def request(
    name: str,
    places: Mapping[str, str],
    *,
    phase: str = "Pending",
    bound: Sequence[str] = (),
    unbound: Sequence[UnboundPod] = (),
    created: str | None = None,
    completed: str | None = None,
    group_name: str | None = None,
    part: int = 0,
    parts: int = 1,
    min_bound: int | None = None,
    after: str | None = None,
    queue: str = "",
    labels: Mapping[str, str] | None = None,
) -> CommittedStatement:
    """Return the Statement of a BindRequest; `places`: pod uid (`uid-NAME`) -> node."""
    return CommittedStatement(
        metadata=kube.Meta(
            name=name,
            namespace=NAMESPACE,
            uid=f"uid-request-{name}",
            creation_timestamp=created,
            labels=dict(labels or {}),
        ),
        spec=StatementSpec(
            pods=[
                PodBinding(pod_name=uid.removeprefix("uid-"), pod_uid=uid, selected_node=place)
                for uid, place in places.items()
            ],
            id=f"{name}-1",
            part=part,
            parts=parts,
            after=after,
            pod_group=PodGroupReference(name=group_name, uid=f"uid-group-{group_name}")
            if group_name
            else None,
            min_bound=min_bound,
            queue=queue,
        ),
        status=StatementStatus(
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
        _apply(cluster, Change(EventType.ADDED, item, None))


def modify(cluster: Cluster, *items: kube.KubeObject) -> None:
    for item in items:
        _apply(cluster, Change(EventType.MODIFIED, item, None))


def delete(cluster: Cluster, *items: kube.KubeObject) -> None:
    for item in items:
        _apply(cluster, Change(EventType.DELETED, item, item))


def _apply(cluster: Cluster, change: Change[kube.KubeObject]) -> None:
    for each in statement_changes(change):
        cluster.apply(each)


def engine_with(*items: kube.KubeObject, clock: Clock | None = None, **fields: Any) -> Engine:
    """Return an engine that knows `items`; `fields`: as for `configuration`."""
    engine = Engine(configuration(**fields), clock or Clock())
    add(engine.cluster, *items)
    return engine


def session_of(cluster: Cluster, *more_plugins: Any, now: float = NOW) -> Session:
    """Return a session over `cluster` with the default plugins and `more_plugins` (objects)."""
    built_in = load(SchedulerConfiguration().plugins)
    plugins = PluginSet([*built_in.plugins, *more_plugins], built_in.seconds)
    return Session(cluster, plugins, FilterCache(), now)


def places(drafts: Iterable[StatementDraft]) -> dict[str, str]:
    """Return pod name -> node of all `drafts`."""
    return {pod.pod_name: pod.selected_node for draft in drafts for pod in draft.spec.pods}


def plan(engine: Engine) -> dict[str, str]:
    """Run one cycle; return pod name -> node."""
    return places(engine.cycle())


def shared_request(
    name: str,
    *statements: CommittedStatement,
    created: str | None = None,
    withdrawn: Sequence[str] = (),
    phase: str = "Pending",
) -> BindRequest:
    """Return a BindRequest that carries `statements`. `phase`: that of the request itself."""
    return BindRequest(
        metadata=kube.Meta(
            name=name,
            namespace=NAMESPACE,
            uid=f"uid-request-{name}",
            creation_timestamp=created,
        ),
        spec=BindRequestSpec(
            statements=[each.spec for each in statements],
            withdrawn=list(withdrawn),
        ),
        status=BindRequestStatus(
            statements=[_entry(each) for each in statements if each.status.phase != "Pending"],
            phase=phase,
        ),
    )


def _entry(statement: CommittedStatement) -> StatementStatus:
    status = statement.status
    unbound = [
        UnboundPod(pod_name=p.pod_name, pod_uid=p.pod_uid, node=p.selected_node, reason="Test")
        for p in statement.spec.pods
        if p.pod_uid not in status.bound_pods
    ]
    return StatementStatus(
        id=statement.spec.id,
        phase=status.phase,
        completion_time=status.completion_time,
        bound_pods=[] if statement.is_final else status.bound_pods,
        unbound_pods=unbound if statement.is_final else [],
    )


def report_of(engine: Engine, name: str) -> JobReport:
    """Return the report of the last cycle about the job `name`, a PodGroup or a single pod."""
    (report,) = [report for key, report in engine.report.jobs.items() if key.name == name]
    return report


def as_created(draft: StatementDraft) -> CommittedStatement:
    """Return what the watch shows once `draft` has been created."""
    stored = as_stored(draft)
    metadata = msgspec.structs.replace(stored.metadata, uid=f"created-{draft.name}")
    return msgspec.structs.replace(stored, metadata=metadata)
