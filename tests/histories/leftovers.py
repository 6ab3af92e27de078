"""What must hold at rest beside `rest`: what the processes report, and what they leave behind."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from bindery.api import gpushare
from bindery.api.names import CHARGED_QUEUE_ANNOTATION, POD_GROUP_ANNOTATION, QUEUE_LABEL
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
        held: Counter[str] = Counter()
        for pod in pods:
            is_alive = pod.status.phase not in ENDED and pod.metadata.deletion_timestamp is None
            # A pod stays charged to the queue of its binding, also after its PodGroup is gone.
            charged = pod.metadata.annotations.get(CHARGED_QUEUE_ANNOTATION)
            named = pod.metadata.labels.get(QUEUE_LABEL)
            name = charged or named or queue_of.get(pod.metadata.uid, "")
            while pod.spec.node_name and is_alive and name:
                held[name] += requested(pod, "cpu")
                name = queues[name].spec.parent or "" if name in queues else ""
        for name, queue in queues.items():
            counted = parse(queue.status.allocated.get("cpu", "0"), "cpu")
            if counted != held[name]:
                text = f"shows {counted}m cores, and its pods hold {held[name]}m"
                yield f"queue {name} {text}"

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
