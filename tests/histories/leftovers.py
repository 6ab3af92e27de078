"""What must hold at rest beside `rest`: what the processes report, and what they leave behind."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from bindery.api import gpushare
from bindery.api.names import (
    CHARGED_QUEUE_ANNOTATION,
    GPU_RESOURCE,
    POD_GROUP_ANNOTATION,
    QUEUE_LABEL,
)
from bindery.api.quantity import parse
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.resources import NODES, POD_GROUPS, PODS, QUEUES
from bindery.kube.objects.watched import Pod
from bindery.kube.objects.workloads import WORKLOAD_JOBS
from tests.histories.apiserver.server import ModelApiServer
from tests.histories.reading import all_of
from tests.histories.world import NAMESPACE
from tests.recounting import ENDED, requested


@dataclass(frozen=True)
class Leftovers:
    """Looks at the stored objects at rest."""

    server: ModelApiServer

    def problems(self) -> list[str]:
        """Return what is not as it must be at rest."""
        pods = [p for p in all_of(self.server, PODS) if p.metadata.namespace == NAMESPACE]
        groups = all_of(self.server, POD_GROUPS)
        nodes = {node.metadata.name for node in all_of(self.server, NODES)}
        found = [text for group in groups for text in _of_counts(group, pods)]
        found += [text for group in groups for text in _of_waiting(group, pods)]
        found += [text for pod in pods for text in _of_pod(pod, nodes)]
        return [*found, *self._of_jobs(groups, pods), *self._of_queues(groups, pods)]

    def _of_queues(self, groups: list[PodGroup], pods: list[Pod]) -> Iterator[str]:
        """Yield the queues whose status counts more or less than what runs in them."""
        queues = {queue.metadata.name: queue for queue in all_of(self.server, QUEUES)}
        queue_of = {
            pod.metadata.uid: group.spec.queue or "default"
            for group in groups
            for pod in members(group, pods)
        }
        held: Counter[tuple[str, str]] = Counter()
        for pod in pods:
            is_alive = pod.status.phase not in ENDED and pod.metadata.deletion_timestamp is None
            # A pod stays charged to the queue of its binding, also after its PodGroup is gone.
            charged = pod.metadata.annotations.get(CHARGED_QUEUE_ANNOTATION)
            named = pod.metadata.labels.get(QUEUE_LABEL)
            name = charged or named or queue_of.get(pod.metadata.uid, "")
            while pod.spec.node_name and is_alive and name:
                held[name, "cpu"] += requested(pod, "cpu")
                held[name, "gpu"] += _gpus(pod)
                name = queues[name].spec.parent or "" if name in queues else ""
        has_other_gpus = any(map(_has_claimed_gpus, pods))
        for name, queue in queues.items():
            for resource, kind in (("cpu", "cpu"), ("gpu", GPU_RESOURCE)):
                counted = parse(queue.status.allocated.get(resource, "0"), kind)
                if counted != held[name, resource] and (resource == "cpu" or not has_other_gpus):
                    text = f"shows {counted}m {resource}, and its pods hold"
                    yield f"queue {name} {text} {held[name, resource]}m"

    def _of_jobs(self, groups: list[PodGroup], pods: list[Pod]) -> Iterator[str]:
        """Yield the Jobs with pods whose PodGroup is not the only one, or not as the Job wants."""
        for job in all_of(self.server, WORKLOAD_JOBS):
            meta = job.metadata
            mine = [
                group
                for group in groups
                if any(owner.uid == meta.uid for owner in group.metadata.owner_references)
            ]
            has_pods = any(
                owner.uid == meta.uid for pod in pods for owner in pod.metadata.owner_references
            )
            if has_pods and len(mine) != 1:
                yield f"Job {meta.name} has {len(mine)} PodGroups"
            stored = self.server.find("jobs", meta.namespace, meta.name)
            parallelism = stored["spec"]["parallelism"] if stored is not None else 0
            for group in mine if has_pods else ():
                if group.spec.min_member != parallelism:
                    text = f"minMember {group.spec.min_member}, and the Job runs {parallelism}"
                    yield f"{group.metadata.name} has {text}"


def members(group: PodGroup, pods: list[Pod]) -> list[Pod]:
    """Return the pods of a gang: which name it, or have a controller that it names."""
    controllers = {member.controller for member in group.spec.members or ()}
    return [
        pod
        for pod in pods
        if pod.metadata.annotations.get(POD_GROUP_ANNOTATION) == group.metadata.name
        or any(owner.uid in controllers for owner in pod.metadata.owner_references)
    ]


def _of_counts(group: PodGroup, pods: list[Pod]) -> Iterator[str]:
    """Yield the counts in the status of a PodGroup that are not those of its pods."""
    mine = members(group, pods)
    if not mine:
        return  # a gang that has finished keeps its counts
    real = {
        "pending": sum(not p.spec.node_name and p.status.phase not in ENDED for p in mine),
        "bound": sum(bool(p.spec.node_name) and p.status.phase not in ENDED for p in mine),
        "succeeded": sum(p.status.phase == "Succeeded" for p in mine),
        "failed": sum(p.status.phase == "Failed" for p in mine),
    }
    for name, number in real.items():
        told = getattr(group.status.pods, name)
        if told != number:
            yield f"{group.metadata.name} tells of {told} {name} pods and has {number}"


def _of_waiting(group: PodGroup, pods: list[Pod]) -> Iterator[str]:
    """Yield the waiting pods of a gang without a condition that gives a reason."""
    for pod in members(group, pods):
        is_waiting = not pod.spec.node_name and pod.status.phase not in ENDED
        conditions = {each.type: each for each in pod.status.conditions or ()}
        said = conditions.get("PodScheduled")
        is_said = said is not None and said.status == "False" and said.reason and said.message
        if is_waiting and pod.metadata.deletion_timestamp is None and not is_said:
            yield f"{pod.metadata.name} waits and has no condition that says why"


def _gpus(pod: Pod) -> int:
    """Return the thousandths of GPUs that a pod asks for, but for claims and HAMi's cards."""
    fraction = pod.metadata.annotations.get(gpushare.FRACTION_ANNOTATION)
    return int(Decimal(fraction) * 1000) if fraction else requested(pod, GPU_RESOURCE)


def _has_claimed_gpus(pod: Pod) -> bool:
    """Whether queues count GPUs for a pod that are not in its own requests."""
    limits = {
        name
        for container in pod.spec.containers
        if container.resources is not None
        for name in container.resources.limits or ()
    }
    return bool(pod.spec.resource_claims) or bool(limits - {"cpu", GPU_RESOURCE})


def _of_pod(pod: Pod, nodes: set[str]) -> Iterator[str]:
    name = pod.metadata.name
    if pod.status.nominated_node_name and not pod.spec.node_name:
        yield f"{name} waits, and is nominated for {pod.status.nominated_node_name}"
    if pod.spec.node_name:
        is_here = pod.spec.node_name in nodes and pod.metadata.deletion_timestamp is None
        if is_here and pod.status.phase == "Pending":
            yield f"{name} is bound and does not start"
        return
    if gpushare.groups(pod.metadata.labels):
        yield f"{name} is not bound, and has the label of a GPU group"
