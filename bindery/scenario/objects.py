"""Convert the parts of a scenario to the Kubernetes objects that the scheduler watches.

Called by `creation`. Pure. Invariant: names and UIDs follow from the scenario's names alone, and
only creation times follow from the order of its lists, where order means age.
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from bindery.api import preemptibility, quantity
from bindery.api.base import ApiModel
from bindery.api.bindrequest import Phase
from bindery.api.hami.requests import in_modules
from bindery.api.names import (
    CHARGED_QUEUE_ANNOTATION,
    GPU_MEMORY_LABEL,
    GPU_MODEL_LABEL,
    GPU_RESOURCE,
    HOSTNAME_LABEL,
    NODE_POOL_LABEL,
    POD_GROUP_ANNOTATION,
    POD_NAME_LABEL,
    PREEMPTIBLE_ANNOTATION,
    ROLE_LABEL,
    SCHEDULER_NAME,
    SELECTED_NODE_LABEL,
    SUB_GROUP_LABEL,
)
from bindery.api.states import SCHEDULED
from bindery.api.times import timestamp
from bindery.kube.objects.bindrequests import (
    CommittedStatement,
    PodBinding,
    StatementSpec,
    StatementStatus,
    UnboundPod,
)
from bindery.kube.objects.podgroups import (
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PodTemplate,
    SubGroup,
    TemplateMeta,
)
from bindery.kube.objects.podspec import (
    Affinity,
    Container,
    ContainerPort,
    EmptyDirSource,
    PersistentVolumeClaimSource,
    PodSpec,
    ResourceRequirements,
    RestartRule,
    SchedulingGate,
    Toleration,
    TopologySpreadConstraint,
    Volume,
    VolumeMount,
)
from bindery.kube.objects.queues import Queue, QueueResource, QueueSpec
from bindery.kube.objects.watched import (
    Condition,
    ContainerImage,
    Meta,
    Node,
    NodeSpec,
    NodeStatus,
    OwnerReference,
    Pod,
    PodStatus,
    Taint,
)
from bindery.scenario import hami, pod_specs, shares
from bindery.scenario.constraints import HostPorts
from bindery.scenario.events import InFlightRequest
from bindery.scenario.jobs import (
    ContainerRequest,
    InitContainer,
    InTreeDisk,
    ScenarioJob,
    ScenarioPod,
)
from bindery.scenario.nodes import ScenarioDevice, ScenarioNode
from bindery.scenario.queues import ScenarioQueue, Share
from bindery.scenario.states import PodState
from bindery.scheduler.world import bound_condition

Struct = TypeVar("Struct", Affinity, ContainerPort, Toleration, TopologySpreadConstraint, Volume)

SCENARIO_GATE: Final = "scenario.bindery.dev/gate"
_STUCK_FOR_S: Final = 3600.0
"""How long a pod that is stuck in releasing has been deleted; any value far above a grace."""
_PHASES: Final = {
    PodState.PENDING: "Pending",
    PodState.GATED: "Pending",
    PodState.BOUND: "Pending",
    PodState.RUNNING: "Running",
    PodState.RELEASING: "Running",
    PodState.STUCK_IN_RELEASING: "Running",
    PodState.SUCCEEDED: "Succeeded",
    PodState.FAILED: "Failed",
}


@dataclass(frozen=True)
class PodIdentity:
    """Identity of a scenario pod, and the fields that it gets from its job."""

    job_name: str
    namespace: str
    name: str
    priority: int = 0
    created_at: float = 0.0
    """Seconds since the epoch, as everywhere here."""
    bound_at: float | None = None
    """When it was bound, of a pod that begins on a node."""
    spread_devices: bool = False
    """Whether its job wants no two pods on one device."""
    shared_devices: tuple[ScenarioDevice, ...] | None = None
    """The devices of its node, of a pod in a scenario about HAMi's protocol; None in others."""
    recreate: bool = True
    """Whether its job's controller replaces it when it is deleted."""

    @property
    def uid(self) -> str:
        """The UID of the pod in its first life."""
        return object_uid("pod", self.namespace, f"{self.name}-0")


def object_uid(kind: str, namespace: str, name: str) -> str:
    """Return the UID of an object of the scenario."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"scenario:{kind}/{namespace}/{name}"))


def node_object(node: ScenarioNode, name: str, at: float) -> Node:
    """Return the node `name` of the entry `node`."""
    labels = {HOSTNAME_LABEL: name}
    if node.gpu_model:
        labels[GPU_MODEL_LABEL] = node.gpu_model
    if node.gpu_memory:
        labels[GPU_MEMORY_LABEL] = str(node.gpu_memory)
    allocatable = {"cpu": node.cpu, "memory": node.memory, "pods": str(node.pods)}
    count = hami.share_count(node) if hami.is_shared(node) else node.gpu_count
    if count:
        allocatable[GPU_RESOURCE] = str(count)
    ready = Condition(type="Ready", status="True" if node.ready else "False")
    return Node(
        metadata=Meta(
            name=name,
            uid=object_uid("node", "", name),
            creation_timestamp=timestamp(at),
            labels={**labels, **node.labels},
            annotations={**hami.node_annotations(node), **node.annotations},
        ),
        spec=NodeSpec(
            unschedulable=node.unschedulable,
            taints=[Taint(key=t.key, value=t.value, effect=t.effect) for t in node.taints],
        ),
        status=NodeStatus(
            allocatable={**allocatable, **node.resources},
            conditions=[ready],
            declared_features=list(node.declared_features),
            images=[
                ContainerImage(names=(name,), size_bytes=quantity.parse(size, "memory"))
                for name, size in node.images.items()
            ],
        ),
    )


def queue_object(queue: ScenarioQueue, at: float) -> Queue:
    """Return the Queue resource of `queue`."""
    return Queue(
        metadata=Meta(
            name=queue.name,
            uid=object_uid("queue", "", queue.name),
            creation_timestamp=timestamp(at),
        ),
        spec=queue.as_struct(
            QueueSpec,
            resources={name: _queue_resource(share) for name, share in queue.shares().items()},
            models={name: _queue_resource(share) for name, share in queue.models.items()},
        ),
    )


def _queue_resource(share: Share) -> QueueResource:
    return QueueResource(quota=share.quota, over_quota_weight=share.weight, limit=share.limit)


def group_object(
    job: ScenarioJob, name: str, node_pool: str, at: float, stale_since: float | None = None
) -> PodGroup:
    """Return the PodGroup `name` of the entry `job`, which may have fallen below its minimum."""
    pools = {pod.labels.get(NODE_POOL_LABEL, node_pool) for pod in job.pods}
    pool = pools.pop() if len(pools) == 1 else node_pool
    return PodGroup(
        metadata=Meta(
            name=name,
            namespace=job.namespace,
            uid=object_uid("podgroup", job.namespace, name),
            creation_timestamp=timestamp(at),
            labels=job.labels | ({NODE_POOL_LABEL: pool} if pool else {}),
            owner_references=[
                OwnerReference(
                    kind=owner.kind,
                    name=owner.name,
                    uid=object_uid(owner.kind, job.namespace, owner.name),
                )
                for owner in job.owners
            ],
        ),
        spec=job.as_struct(
            PodGroupSpec,
            min_member=job.least_pods,
            queue=job.queue or "",
            priority_class_name=job.priority if isinstance(job.priority, str) else None,
            sub_groups=[
                group.as_struct(
                    SubGroup, name=group.name, template=_template(group.template, job, name)
                )
                for group in job.sub_groups
            ],
            preemptibility=_word(job.preemptible),
            staleness_grace_period_seconds=job.staleness_grace,
        ),
        status=PodGroupStatus(
            ran_seconds=job.ran,
            conditions=None if stale_since is None else [_unscheduled_condition(stale_since)],
        ),
    )


def _word(preemptible: bool | None) -> str | None:
    return None if preemptible is None else preemptibility.word(preemptible)


def _template(pod: ScenarioPod | None, job: ScenarioJob, name: str) -> PodTemplate | None:
    """Return the template of pods such as `pod` of the PodGroup `name`."""
    if pod is None:
        return None
    who = PodIdentity(name, job.namespace, name, spread_devices=job.spread_devices)
    made = pod_object(pod, who, node_pool="", now=0.0)
    meta = TemplateMeta(
        labels=made.metadata.labels,
        annotations={
            key: value
            for key, value in made.metadata.annotations.items()
            if key != POD_GROUP_ANNOTATION
        },
    )
    spec = msgspec.structs.replace(made.spec, priority=None)
    return PodTemplate(metadata=meta, spec=msgspec.to_builtins(spec))


def _unscheduled_condition(at: float) -> Condition:
    """Return the condition of a gang that has had less than its minimum since `at`."""
    return Condition(
        type=SCHEDULED, status="False", reason="BelowMinimum", last_transition_time=timestamp(at)
    )


def pod_object(pod: ScenarioPod, who: PodIdentity, *, node_pool: str, now: float) -> Pod:
    """Return the pod `who` of the entry `pod`, in the state of the entry."""
    labels = {NODE_POOL_LABEL: node_pool} if node_pool else {}
    if pod.role:
        labels[ROLE_LABEL] = pod.role
    if pod.sub_group:
        labels[SUB_GROUP_LABEL] = pod.sub_group
    annotations = {POD_GROUP_ANNOTATION: who.job_name}
    if who.shared_devices is None:
        labels |= shares.labels(pod)
        annotations |= shares.annotations(pod, spread_devices=who.spread_devices)
    else:
        annotations |= hami.pod_annotations(
            pod, who.shared_devices, spread_devices=who.spread_devices
        )
    if pod.preemptible is not None:
        annotations[PREEMPTIBLE_ANNOTATION] = str(pod.preemptible).lower()
    labels |= pod.labels
    annotations |= pod.annotations
    if pod.node:
        annotations |= shares.recorded(annotations, labels, who.uid)
        if pod.charged_queue:
            annotations[CHARGED_QUEUE_ANNOTATION] = pod.charged_queue
    deleted = {
        PodState.RELEASING: timestamp(now),
        PodState.STUCK_IN_RELEASING: timestamp(now - _STUCK_FOR_S),
    }
    return Pod(
        metadata=Meta(
            name=who.name,
            namespace=who.namespace,
            uid=who.uid,
            creation_timestamp=timestamp(who.created_at),
            deletion_timestamp=deleted.get(pod.state),
            labels=labels,
            annotations=hami.recorded(pod, annotations, who.uid),
            owner_references=[_controller(who)] if who.recreate else [],
        ),
        spec=pod_specs.merged(_spec(pod, who), pod.spec),
        status=PodStatus(
            phase=_PHASES[pod.state],
            nominated_node_name=pod.nominated_node,
            conditions=None if who.bound_at is None else [bound_condition(who.bound_at)],
        ),
    )


def _spec(pod: ScenarioPod, who: PodIdentity) -> PodSpec:
    """Return the spec of a pod by its short keys."""
    gates = [SchedulingGate(name=SCENARIO_GATE)] if pod.state is PodState.GATED else None
    return PodSpec(
        node_name=pod.node,
        scheduler_name=pod.scheduler_name or SCHEDULER_NAME,
        priority=who.priority,
        preemption_policy=pod.preemption_policy,
        **_feature_fields(pod.required_features),
        containers=_with_features(pod.required_features, _containers("main", pod, pod, who)),
        init_containers=[
            each
            for index, container in enumerate(pod.init_containers)
            for each in _containers(f"init-{index}", pod, container, who)
        ],
        node_selector=pod.node_selector,
        affinity=_converted(pod.affinity, Affinity),
        tolerations=[_converted(item, Toleration) for item in pod.tolerations],
        topology_spread_constraints=[
            _converted(item, TopologySpreadConstraint) for item in pod.topology_spread_constraints
        ],
        scheduling_gates=gates,
        volumes=_volumes(pod),
    )


def _feature_fields(features: Collection[str]) -> dict[str, Any]:
    """Return the fields of the spec that need one of the kubelet's `features`."""
    if "UserNamespacesHostNetworkSupport" not in features:
        return {}
    return {"host_network": True, "host_users": False}


def _with_features(features: Collection[str], containers: list[Container]) -> list[Container]:
    """Return `containers`, the first with the fields that need one of `features`."""
    changes: dict[str, Any] = {}
    if "RestartAllContainersOnContainerExits" in features:
        changes["restart_policy_rules"] = [RestartRule(action="RestartAllContainers")]
    if "VolumeBindMountOptions" in features:
        changes["volume_mounts"] = [VolumeMount(bind_mount_options=["noexec"])]
    return [msgspec.structs.replace(containers[0], **changes), *containers[1:]]


def _controller(who: PodIdentity) -> OwnerReference:
    """Return the reference to the Job that creates the pods of `who`'s job."""
    uid = object_uid("job", who.namespace, who.job_name)
    return OwnerReference(
        api_version="batch/v1", kind="Job", name=who.job_name, uid=uid, controller=True
    )


def _containers(
    name: str, pod: ScenarioPod, request: ScenarioPod | InitContainer, who: PodIdentity
) -> list[Container]:
    """Return a container of `pod` with `request`, and one for each further image."""
    restarts = isinstance(request, InitContainer) and request.restart_policy
    container = Container(
        name=name,
        image=next(iter(request.images), ""),
        resources=_requirements(pod, request, who),
        restart_policy=restarts or None,
        ports=_ports(request.host_ports),
    )
    further = enumerate(request.images[1:], start=1)
    return [container, *(Container(name=f"{name}-{i}", image=image) for i, image in further)]


def _ports(ports: HostPorts) -> list[ContainerPort] | None:
    """Return the ports of a container."""
    return [_converted(port, ContainerPort) for port in ports] or None


def _volumes(pod: ScenarioPod) -> list[Volume] | None:
    local = [Volume(name="local-data", empty_dir=EmptyDirSource())] if pod.local_data else []
    return [*map(_volume, pod.volumes), *local] or None


def _volume(each: str | InTreeDisk) -> Volume:
    if isinstance(each, InTreeDisk):
        return _converted(each, Volume)
    return Volume(name=each, persistent_volume_claim=PersistentVolumeClaimSource(claim_name=each))


def _requirements(
    pod: ScenarioPod, request: ContainerRequest, who: PodIdentity
) -> ResourceRequirements:
    """Return the requests of a container; extended resources always have equal limits."""
    extended = dict(request.resources)
    if who.shared_devices is not None:
        extended |= hami.resources(request)
    elif request.gpus:
        extended[GPU_RESOURCE] = str(request.gpus)
    if not pod.node:  # as the admission webhook leaves it
        extended |= in_modules(extended)
    basic = {
        name: amount
        for name, amount in (("cpu", request.cpu), ("memory", request.memory))
        if amount != "0"
    }
    limits = {**extended, **basic} if pod.qos == "Guaranteed" else extended
    return ResourceRequirements(requests={**extended, **basic}, limits=limits)


def request_object(entry: InFlightRequest, pods: Sequence[Meta], now: float) -> CommittedStatement:
    """Return the only Statement of the BindRequest `entry` for `pods`."""
    first = pods[0]
    name, at = f"{first.name}-in-flight", timestamp(now - entry.age)
    labels = {NODE_POOL_LABEL: entry.node_pool} if entry.node_pool else {}
    if len(pods) == 1:
        labels |= {POD_NAME_LABEL: first.name, SELECTED_NODE_LABEL: entry.node}
    bindings = [
        PodBinding(pod_name=pod.name, pod_uid=entry.uid or pod.uid, selected_node=entry.node)
        for pod in pods
    ]
    unbound = [
        UnboundPod(pod_name=pod.pod_name, pod_uid=pod.pod_uid, node=entry.node, reason="BindFailed")
        for pod in bindings
        if entry.phase is Phase.FAILED
    ]
    return CommittedStatement(
        metadata=Meta(
            name=name,
            namespace=first.namespace,
            uid=object_uid("bindrequest", first.namespace, name),
            creation_timestamp=at,
            labels={**labels, **entry.labels},
        ),
        spec=StatementSpec(pods=bindings, id=name),
        backoff_limit=entry.backoff_limit,
        status=StatementStatus(
            phase=entry.phase.value,
            failed_attempts=entry.failed_attempts,
            completion_time=at if entry.phase.is_final else None,
            unbound_pods=unbound,
        ),
    )


def _converted(model: ApiModel, struct: type[Struct]) -> Struct:
    """Return the Kubernetes object that `model` describes."""
    wire = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return msgspec.convert(wire, struct)
