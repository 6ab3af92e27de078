"""Reading one pod into a task, and one PodGroup into a job.

Used by tasks.py, which adds the state of requests, nodes and other pods. Each function reads only
one object.
"""

import math

from bindery.api import disruption, exclusive, gpushare, keptroom, preemptibility, ranks
from bindery.api.names import (
    CHARGED_GROUP_ANNOTATION,
    CHARGED_PREEMPTIBILITY_ANNOTATION,
    CHARGED_QUEUE_ANNOTATION,
    EXCLUSIVE_DOMAINS_ANNOTATION,
    EXPECTED_RUNTIME_ANNOTATION,
    GPU_INDEXES_ANNOTATION,
    GPUS_IDLE_SINCE_ANNOTATION,
    KEPT_ROOM_ANNOTATION,
    LAST_CHECKPOINT_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    QUEUE_LABEL,
    ROLE_LABEL,
    SPREAD_DEVICES_ANNOTATION,
)
from bindery.api.states import LONGEST_STAGE_TIMEOUT_S, MOST_GANG_PODS, GangState
from bindery.api.times import seconds
from bindery.kube.objects.membership import member_problem
from bindery.kube.objects.ownernames import workload_text
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import Pod
from bindery.scheduler.cache.members import JobMembership, mark_problem
from bindery.scheduler.model import constraints, gangs, stages
from bindery.scheduler.model.idleness import sick_devices
from bindery.scheduler.model.jobs import DEFAULT_STAGE_TIMEOUT_S, NO_ROW, Job, Task, TaskStatus, Uid
from bindery.scheduler.model.node_refusals import loss_text
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.starts import obstacle

_INDEX_DIGITS = 4


def queue_of(pod: Pod, default: str) -> str:
    """Return the queue of a pod without a PodGroup; `default`: that of its namespace."""
    return pod.metadata.labels.get(QUEUE_LABEL) or default


def status_by_pod(pod: Pod) -> TaskStatus | None:
    """Return the status by the pod object alone; None for a pod that will never be bound."""
    # The phase comes first: an ended pod holds no room, even while it is being deleted.
    if pod.status.phase == "Succeeded":
        return TaskStatus.SUCCEEDED
    if pod.status.phase == "Failed":
        return TaskStatus.FAILED
    leaving = pod.metadata.deletion_timestamp is not None
    if pod.spec.node_name:
        return TaskStatus.RELEASING if leaving else TaskStatus.RUNNING
    if leaving:  # deleted before its binding
        return None
    return TaskStatus.GATED if pod.spec.scheduling_gates else TaskStatus.PENDING


def read_pod(
    pod: Pod, status: TaskStatus, shape: Shape, scheduler_name: str, place: JobMembership
) -> Task:
    """Return the task of `pod`, without charges. Pods with `scheduler_name` are planned."""
    return Task(
        uid=Uid(pod.metadata.uid),
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        job=place.job,
        shape=shape,
        priority=pod.spec.priority or 0,
        has_own_priority=pod.spec.priority is not None,
        created=pod.metadata.creation_timestamp or "",
        pod_status=status,
        runs=pod.status.phase == "Running",
        asks=disruption.asks(
            pod.metadata.annotations,
            [volume.name for volume in pod.spec.volumes or () if volume.has_local_data],
        ),
        asks_until=disruption.asks_until(pod.metadata.annotations, seconds(pod.status.start_time)),
        checkpoint_at=seconds(pod.metadata.annotations.get(LAST_CHECKPOINT_ANNOTATION)) or 0.0,
        idle_since=seconds(_recorded(pod, GPUS_IDLE_SINCE_ANNOTATION)) or math.inf,
        sick_devices=sick_devices(
            (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
        ),
        pod_node=pod.spec.node_name,
        gone_by=seconds(pod.metadata.deletion_timestamp) or math.inf,
        own_preemptible=preemptibility.read_annotation(
            pod.metadata.annotations.get(PREEMPTIBLE_ANNOTATION, "")
        ),
        bound_at=_bound_at(pod),
        runtime_s=runtime_of(pod),
        never_preempts=pod.spec.preemption_policy == "Never",
        sub_group=place.sub_group,
        role=pod.metadata.labels.get(ROLE_LABEL, ""),
        gpu_groups=gpushare.groups(pod.metadata.labels),
        gpu_indexes=_gpu_indexes(pod),
        recorded_queue=_recorded(pod, CHARGED_QUEUE_ANNOTATION),
        recorded_preemptible=recorded_preemptible(pod),
        recorded_group=_recorded(pod, CHARGED_GROUP_ANNOTATION),
        kept_room=keptroom.from_record(
            pod.metadata.annotations.get(KEPT_ROOM_ANNOTATION), pod.metadata.uid
        ),
        reserves_gpu=gpushare.is_reservation(pod.metadata.namespace, pod.metadata.labels),
        spreads_devices=pod.metadata.annotations.get(SPREAD_DEVICES_ANNOTATION) == "true",
        rank=ranks.rank(pod.metadata.labels),
        held_levels=_held_levels(pod),
        exclusive_unit=exclusive.exclusive_unit(pod.metadata.annotations, pod.metadata.labels),
        is_ours=pod.spec.scheduler_name == scheduler_name,
        is_recreated=any(owner.controller for owner in pod.metadata.owner_references),
        awaits_group=place.awaits_group,
        mark_problem=mark_problem(pod) if place.awaits_group else "",
        loss=loss_text(pod),
        obstacle=obstacle(pod) if status is TaskStatus.RUNNING else None,
        labels=pod.metadata.labels,
    )


def are_equivalent(one: Task, other: Task) -> bool:
    """Return whether two tasks, read from two states of one pod, have the same content."""
    return (
        one.shape is other.shape
        and (one.job, _own_priority(one)) == (other.job, _own_priority(other))
        and (one.own_preemptible, one.awaits_group) == (other.own_preemptible, other.awaits_group)
        and (one.sub_group, one.role) == (other.sub_group, other.role)
        and (one.rank, one.exclusive_unit) == (other.rank, other.exclusive_unit)
        and (one.bound_at, one.runtime_s) == (other.bound_at, other.runtime_s)
        and (one.pod_status, one.pod_node) == (other.pod_status, other.pod_node)
        and (one.gone_by, one.is_recreated) == (other.gone_by, other.is_recreated)
        and one.recorded_queue == other.recorded_queue
        and one.recorded_group == other.recorded_group
        and (one.held_levels == other.held_levels or not other.pod_node)
        and one.recorded_preemptible == other.recorded_preemptible
        and one.is_of_pool == other.is_of_pool
        and _devices(one) == _devices(other)
    )


def counts_alike(one: Task, other: Task) -> bool:
    """Return whether two states of a pod that is ours have the same devices and place in the gang.

    A pod that reserves a GPU proves the shares of others, so it never counts as alike.
    """
    return (
        one.is_ours
        and other.is_ours
        and not other.reserves_gpu
        and one.row != NO_ROW
        and (one.sub_group, one.role) == (other.sub_group, other.role)
        and (one.gpu_groups, one.gpu_indexes) == (other.gpu_groups, other.gpu_indexes)
        and (one.spreads_devices, one.is_of_pool) == (other.spreads_devices, other.is_of_pool)
    )


def shows_its_binding(before: Task, after: Task) -> bool:
    """Return whether the only change of a pod is its binding to the node that held its room."""
    return (
        (before.status, after.status) == (TaskStatus.BINDING, TaskStatus.RUNNING)
        and before.node_name == after.node_name
        and before.shape is after.shape
        and before.job == after.job
    )


def read_group(job: Job, group: PodGroup) -> None:
    """Write the fields of `group` into `job`, except the queue."""
    job.exists, job.uid, job.workload = True, Uid(group.metadata.uid), workload_text(group)
    job.created, job.labels = group.metadata.creation_timestamp or "", group.metadata.labels
    job.priority_class = group.spec.priority_class_name
    job.min_member, job.roles = max(0, group.spec.min_member), group.spec.roles
    job.preemption_delay_s = group.spec.preemption_delay_seconds
    job.staleness_grace_s = group.spec.staleness_grace_period_seconds
    job.runtime_s = _positive(group.spec.expected_runtime_seconds)
    job.run_time_limit_s = _positive(group.spec.run_time_limit_seconds)
    runs = group.status.state == GangState.RUNNING
    checkpoint = group.metadata.annotations.get(LAST_CHECKPOINT_ANNOTATION)
    job.checkpoint_at = seconds(checkpoint) or 0.0
    job.ran_s = group.status.ran_seconds
    job.running_since = seconds(group.status.since) if runs else None
    job.own_preemptible = preemptibility.read(group.spec.preemptibility or "")
    job.goes_whole = group.spec.disruption_mode == "Group"
    job.preemption_policy = group.spec.preemption_policy
    job.invalid, job.stages, job.groups, job.successors = None, (), {}, {}
    try:
        job.tree = gangs.build(group.spec.sub_groups, group.spec.min_sub_group)
        _read_stages(job, group)
    except gangs.GangError as error:
        job.tree, job.invalid = None, str(error)
    job.topology = None
    try:
        job.topology = constraints.read(group.spec.topology)
    except constraints.ConstraintError as error:
        job.invalid = f"spec.topology: {error}"
    # Kept, because they are asked for in each attempt and trees are large.
    job.has_constraints = any(True for _ in job.constraints())
    job.has_segments = any(constraint.segment for _, constraint in job.constraints())
    if group.unreadable:
        job.invalid = group.unreadable
    elif (problem := member_problem(group.spec)) is not None:
        job.invalid = problem
    elif group.spec.min_member < 0:
        job.invalid = f"spec.minMember is {group.spec.min_member}: it must not be negative"
    elif group.spec.min_member > MOST_GANG_PODS:
        text = f"spec.minMember is {group.spec.min_member}"
        job.invalid = f"{text}: the maximum is {MOST_GANG_PODS}"
    elif (most := max(group.spec.roles.values(), default=0)) > MOST_GANG_PODS:
        job.invalid = f"spec.roles demands {most} pods: the maximum is {MOST_GANG_PODS}"


def _read_stages(job: Job, group: PodGroup) -> None:
    """Write the later stages of `job`; its minimum is without them, as they cannot exist yet."""
    timeout_s = group.spec.stage_timeout_seconds
    job.stage_timeout_s = (
        DEFAULT_STAGE_TIMEOUT_S if timeout_s is None else min(timeout_s, LONGEST_STAGE_TIMEOUT_S)
    )
    if job.tree is None:
        return
    job.stages = stages.read(job.tree)
    if job.stages:
        job.groups = {each.name: each for each in job.tree.all_groups()}
        job.successors = stages.successors(job.tree, job.stages)
        later = stages.least_of_later(job.stages)
        first = sum(leaf.min_member or 0 for leaf in job.tree.leaves()) - later
        if job.min_member > first:  # it counts the later stages too
            job.min_member = max(first, job.min_member - later, min(1, job.min_member))


def forget_group(job: Job) -> None:
    """Reset `job` to its state before its PodGroup was seen, except the queue."""
    read_group(job, PodGroup())
    job.exists = False


def _devices(task: Task) -> tuple[object, ...]:
    # Before the binding the groups come from the pod's request, not from its labels.
    is_bound = task.pod_status.holds_room
    groups = task.gpu_groups if is_bound else ()
    return groups, task.gpu_indexes, task.reserves_gpu, task.spreads_devices


def recorded_preemptible(pod: Pod) -> bool | None:
    """Return whether a bound pod is recorded as preemptible; None without a record."""
    return preemptibility.read(_recorded(pod, CHARGED_PREEMPTIBILITY_ANNOTATION))


def _held_levels(pod: Pod) -> tuple[str, ...]:
    text = _recorded(pod, EXCLUSIVE_DOMAINS_ANNOTATION)
    held = exclusive.from_record(text, pod.metadata.uid)
    return held.levels if held is not None else ()


def _recorded(pod: Pod, key: str) -> str:
    """Return the binder's record on a bound pod; "" if there is none."""
    if not pod.spec.node_name:  # the binder records with the binding: this is the owner's text
        return ""
    return pod.metadata.annotations.get(key, "")


def _gpu_indexes(pod: Pod) -> tuple[int, ...]:
    """Return the reported device indexes of the pod, without unreadable ones.

    A reservation pod reports its device by index or by UUID; of a UUID, an observer may have
    written the index.
    """
    meta = pod.metadata
    is_reservation = gpushare.is_reservation(meta.namespace, meta.labels)
    own = meta.annotations.get(gpushare.INDEX_ANNOTATION, "") if is_reservation else ""
    text = own if own.isdigit() else meta.annotations.get(GPU_INDEXES_ANNOTATION, "")
    parts = text.split(",") if text else []
    return tuple(int(p) for p in parts if p.isascii() and p.isdigit() and len(p) < _INDEX_DIGITS)


def _own_priority(task: Task) -> int | None:
    return task.priority if task.has_own_priority else None


def _bound_at(pod: Pod) -> float | None:
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "True":
            return seconds(condition.last_transition_time)
    return None


def runtime_of(pod: Pod) -> float:
    """Return the longest runtime of the pod; infinite if it has none that can be read."""
    try:
        said = float(pod.metadata.annotations.get(EXPECTED_RUNTIME_ANNOTATION, "inf"))
    except ValueError:
        said = math.inf
    return min(_positive(said), _positive(pod.spec.active_deadline_seconds))


def _positive(seconds_said: float | None) -> float:
    return seconds_said if seconds_said is not None and seconds_said > 0 else math.inf
