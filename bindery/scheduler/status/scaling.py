"""Computes the scaling pods to create and delete. Pure; `scaling_writer` writes them.

A pod with a share of a GPU requests no GPU that an autoscaler can see. A scaling pod requests the
whole GPUs that some waiting shares need together, in a namespace of its own. No scheduler ever
places it. It is deleted as soon as one of its shares is placed or waits for another reason.
"""

import hashlib
import json
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np

from bindery.api import names, quantity
from bindery.api.bindrequest import few_names
from bindery.api.configuration import SchedulerConfiguration
from bindery.api.gpureservation import ReservationResources, given_resources
from bindery.api.gpus import MODEL_PREFIX
from bindery.api.gpushare import PLUGIN as SHARES
from bindery.api.gpushare import WHOLE
from bindery.api.scaling import PLUGIN, SCHEDULER_NAME, ScalingArguments
from bindery.kube.objects.watched import Meta, Pod
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.defects import DefectStage, of_job
from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.jobs import Job, Task, TaskStatus, Uid
from bindery.scheduler.model.labels import LabelColumns, node_affinity_mask
from bindery.scheduler.model.reasons import LACKS_ROOM, JobReason
from bindery.scheduler.model.resources import PODS, reservation_amounts
from bindery.scheduler.model.shapes import Need, Shape
from bindery.scheduler.planning.reports import CycleReport, JobReport
from bindery.scheduler.status.gpu_packing import Amounts, Pack, ShareWant, pack
from bindery.scheduler.status.podtemplates import IMAGE, tolerations, without_none
from bindery.scheduler.status.provisioning import needed

_UNDECIDED: Final = frozenset({JobReason.NOT_TRIED_YET, JobReason.INTERNAL_ERROR})
"""Reasons for which existing scaling pods stay and no others are created."""
_ALONE: Final = frozenset(
    {
        Need.POD_AFFINITY,
        Need.POD_ANTI_AFFINITY,
        Need.TOPOLOGY_SPREAD,
        Need.HOST_PORTS,
        Need.RESOURCE_CLAIMS,
        Need.VOLUMES,
    }
)
"""Needs by which two pods may have to be on different nodes."""


def arguments_of(configuration: SchedulerConfiguration) -> ScalingArguments | None:
    """Return the arguments of the plugin; None if it is not configured."""
    for plugin in configuration.plugins:
        if plugin.name == PLUGIN:
            return ScalingArguments.model_validate(plugin.arguments)
    return None


def owner_label(configuration: SchedulerConfiguration) -> str:
    """Return the value of the label of this scheduler's scaling pods."""
    text = f"{configuration.scheduler_name}/{configuration.node_pool}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ScalingPod:
    """A scaling pod to create."""

    name: str
    kind: Mapping[str, Any]
    """The fields of the spec that restrict its nodes."""
    requests: Mapping[str, str]
    metas: tuple[Meta, ...]
    """The waiting pods whose shares it requests."""

    @property
    def pods(self) -> tuple[str, ...]:
        """UIDs of the waiting pods, sorted."""
        return tuple(sorted(meta.uid for meta in self.metas))

    def to_object(self, owner: str) -> dict[str, Any]:
        """Return the pod. It meets the Pod Security Standard `restricted`."""
        safe = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        container = {
            "name": "scaling",
            "image": IMAGE,
            "resources": {"requests": dict(self.requests), "limits": dict(self.requests)},
            "securityContext": safe,
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "labels": {names.SCALED_BY_LABEL: owner},
                "annotations": {names.SCALES_FOR_ANNOTATION: " ".join(self.pods)},
            },
            "spec": {
                **self.kind,
                "schedulerName": SCHEDULER_NAME,
                "schedulingGates": [{"name": names.SCALING_GATE}],
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
            },
        }

    @property
    def message(self) -> str:
        """The message of its condition: the waiting pods whose shares it requests."""
        texts = (f"{meta.namespace}/{meta.name}" for meta in self.metas)
        return f"requests whole GPUs for shares of waiting pods: {few_names(texts)}"


@dataclass(frozen=True)
class Existing:
    """A scaling pod in the cluster."""

    name: str
    pods: frozenset[str]
    """UIDs of the waiting pods whose shares it requests."""
    is_marked: bool
    """Whether the pod has the condition that autoscalers look for."""
    is_sound: bool
    """Whether the pod waits as intended."""


def existing(pod: Pod) -> Existing:
    """Return the description of a pod of the namespace."""
    conditions = pod.status.conditions or ()
    return Existing(
        pod.metadata.name,
        frozenset(pod.metadata.annotations.get(names.SCALES_FOR_ANNOTATION, "").split()),
        any(each.type == "PodScheduled" and each.reason == "Unschedulable" for each in conditions),
        not pod.spec.node_name and pod.status.phase in ("", "Pending"),
    )


@dataclass(frozen=True)
class ScalingDemand:
    """The waiting shares, and the scaling pods for them."""

    arguments: ScalingArguments
    owner: str
    waiting: Collection[str] = frozenset()
    """UIDs of the known pods with shares that still wait for room."""
    pods: Sequence[ScalingPod] = ()
    """The scaling pods for all these shares, in order, within the limit."""
    only_less: bool = False
    """Whether nothing may be created, because `pods` is unknown."""


@dataclass(frozen=True)
class Changes:
    """The scaling pods to create and delete."""

    delete: Sequence[str] = ()
    """Names of scaling pods."""
    create: Sequence[ScalingPod] = ()

    def __bool__(self) -> bool:
        return bool(self.delete or self.create)


def changes(known: Mapping[str, Existing], demand: ScalingDemand, *, may_create: bool) -> Changes:
    """Return the changes from `known` (name -> scaling pod) to `demand`.

    A scaling pod is deleted if one of its pods has been placed, because its request would count in
    addition to that pod. All others change only in rounds that may also create.
    """
    kept = [
        name
        for name, pod in known.items()
        if pod.is_sound and pod.pods and pod.pods <= set(demand.waiting)
    ]
    gone = [name for name in known if name not in set(kept)]
    if demand.only_less or not may_create:
        return Changes(delete=sorted(gone))
    wanted = {pod.name for pod in demand.pods}
    replaced = [name for name in kept if name not in wanted]
    new = [pod for pod in demand.pods if pod.name not in known or pod.name in gone]
    return Changes(sorted([*gone, *replaced]), new)


def waits(cluster: Cluster, uid: str) -> bool:
    """Return whether the pod exists and is neither placed nor about to be bound."""
    task = cluster.state.tasks.get(Uid(uid))
    return task is not None and task.status is TaskStatus.PENDING


def demand(
    cluster: Cluster,
    report: CycleReport,
    configuration: SchedulerConfiguration,
    arguments: ScalingArguments,
    covered: Collection[str],
) -> ScalingDemand:
    """Return the demand for scaling pods after the cycle; `covered`: UIDs with such pods."""
    collector = _Collector(cluster, configuration, arguments)
    order: list[tuple[tuple[int, str, str], list[list[ShareWant]]]] = []
    for job_report in report.jobs.values():
        job = cluster.state.jobs.get(job_report.key)
        # An error in one gang's pods must not affect the scaling pods of other gangs.
        with cluster.defects.held_to(DefectStage.REPORT, of_job(job_report.key), lambda _: None):
            gangs = list(collector.gangs(job, job_report, covered)) if job is not None else []
            if job is not None and gangs:
                key = -cluster.priority(job), job.created, str(job.key)
                order.append((key, gangs))
    gangs = [gang for _, of_job_ in sorted(order, key=lambda each: each[0]) for gang in of_job_]
    waiting = collector.undecided.union(want.uid for gang in gangs for want in gang)
    packs = pack(gangs, arguments.max_gpus, collector.overhead, collector.fits)
    owner = owner_label(configuration)
    pods = [collector.scaling_pod(each, owner) for each in packs]
    return ScalingDemand(arguments, owner, waiting, pods)


@dataclass
class _Collector:
    """Reads the waiting shares of jobs."""

    cluster: Cluster
    configuration: SchedulerConfiguration
    arguments: ScalingArguments
    overhead: Amounts = field(init=False)
    undecided: set[str] = field(default_factory=set)
    """UIDs of pods with shares whose jobs have no decision of a cycle yet."""
    _kinds: dict[tuple[Shape, str], str] = field(default_factory=dict)
    """Shape and PriorityClass -> the kind of such pods."""
    _rows: dict[Hashable, IntColumns] = field(default_factory=dict)
    """Kind -> the allocatable amounts of the nodes with GPUs for it: [resource, node]."""
    _memory: dict[Hashable, list[int]] = field(default_factory=dict)
    """Kind -> memory of the GPUs of these nodes, in MiB, as far as known."""

    def __post_init__(self) -> None:
        state = self.cluster.state
        self._axis, self._labels = state.axis, LabelColumns(state.nodes)
        planned = reservation_amounts(_reservation(self.configuration).planned)
        self.overhead = self._indexed(planned)
        self._unknown = self._indexed(
            {
                name: quantity.parse(text, name)
                for name, text in self.arguments.unknown_node_resources.items()
            }
        )

    def gangs(
        self, job: Job, report: JobReport, covered: Collection[str]
    ) -> Iterator[list[ShareWant]]:
        """Yield shares that must fit together: the gang's minimum, then each further share."""
        reason = report.waits_for or report.reason
        if reason not in LACKS_ROOM and reason not in _UNDECIDED:
            return
        tasks = [task for task in job.pending.values() if task.shares_gpu]
        if reason in _UNDECIDED:
            self.undecided.update(task.uid for task in tasks)
            tasks = [task for task in tasks if task.uid in covered]
        if not tasks:
            return
        first = {task.uid for task in needed(job)} if job.key.is_group else set()
        wants = {
            task.uid: self._want(task, pod)
            for task in sorted(tasks, key=lambda task: task.order)
            if (pod := self.cluster.pods.get(task.uid)) is not None
        }
        gang = [want for uid, want in wants.items() if uid in first]
        if gang:
            yield gang
        yield from ([want] for uid, want in wants.items() if uid not in first)

    def fits(self, kind: Hashable, gpus: int, amounts: Amounts) -> bool:
        """Return whether an empty node has room for a pack of `kind`."""
        known = self._rows[kind]
        if not known.shape[1]:
            most = self._unknown.items()
            return all(amounts.get(at, 0) <= amount * gpus for at, amount in most)
        indices = [*amounts, self._axis.index(names.GPU_RESOURCE)]
        needs = [*amounts.values(), gpus * quantity.scale(names.GPU_RESOURCE)]
        column = np.array(needs, dtype=np.int64)[:, np.newaxis]
        return bool((known[indices] >= column).all(axis=0).any())

    def scaling_pod(self, made: Pack, owner: str) -> ScalingPod:
        """Return the scaling pod of `made`."""
        amounts = {self._axis.names[at]: amount for at, amount in made.amounts.items()}
        requests = {
            name: quantity.canonical(amount, name)
            for name, amount in sorted(amounts.items())
            if name != PODS and not name.startswith(MODEL_PREFIX)
        }
        requests[names.GPU_RESOURCE] = str(made.gpus)
        uids = tuple(sorted(want.uid for want in made.wants))
        kind = json.loads(str(made.kind))
        content = json.dumps([owner, kind, requests, uids], sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()[:20]
        metas = tuple(self.cluster.pods[Uid(uid)].metadata for uid in uids)
        return ScalingPod(f"scaling-{digest}", kind, requests, metas)

    def _want(self, task: Task, pod: Pod) -> ShareWant:
        share = task.shape.request.share
        assert share is not None, "only called for pods with shares"
        kind = self._kind(task, pod)
        memory = [each for each in self._memory[kind] if each >= share.memory_mib]
        portion = share.portion_of(min(memory, default=0)) or WHOLE
        gpu = self._axis.index(names.GPU_RESOURCE)
        request = task.shape.request
        amounts = dict(zip(request.indices, request.amounts, strict=True))
        amounts.pop(gpu, None)
        return ShareWant(
            task.uid,
            task.job,
            kind,
            min(portion, WHOLE),
            share.devices,
            amounts,
            task.spreads_devices,
            not _ALONE.isdisjoint(task.shape.needs),
        )

    def _kind(self, task: Task, pod: Pod) -> str:
        """Return the constraints of the pod on nodes, as JSON."""
        key = task.shape, pod.spec.priority_class_name
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._new_kind(*key)
        return kind

    def _new_kind(self, shape: Shape, priority_class: str) -> str:
        """Return the kind of pods of `shape`; look up the nodes for it."""
        fields = dict[str, Any]()
        selector = dict(shape.node_selector)
        if self.configuration.node_pool:
            selector[names.NODE_POOL_LABEL] = self.configuration.node_pool
        if selector:
            fields["nodeSelector"] = selector
        if shape.node_affinity is not None:
            fields["affinity"] = {"nodeAffinity": msgspec.to_builtins(shape.node_affinity)}
        if shape.tolerations:
            fields["tolerations"] = tolerations(shape.tolerations)
        if priority_class:
            fields["priorityClassName"] = priority_class
        kind = json.dumps(without_none(fields), sort_keys=True)
        if kind not in self._rows:
            nodes = self.cluster.state.nodes
            mask = node_affinity_mask(self._labels, selector, shape.node_affinity)
            mask &= nodes.exists
            rows = np.flatnonzero(mask & (nodes.allocatable[self._axis.index("gpu")] > 0))
            self._rows[kind] = nodes.allocatable[:, rows]
            memory = nodes.devices.memory_mib(rows)
            self._memory[kind] = [int(each) for each in memory if each > 0]
        return kind

    def _indexed(self, amounts: Mapping[str, int]) -> dict[int, int]:
        return {self._axis.index(name): amount for name, amount in amounts.items() if name != PODS}


def _reservation(configuration: SchedulerConfiguration) -> ReservationResources:
    for plugin in configuration.plugins:
        if plugin.name == SHARES and "resources" in plugin.arguments:
            return ReservationResources.model_validate(plugin.arguments["resources"])
    return given_resources()
