"""Finds the pods and PodGroups of a workload by kind and name. Used by `subjects`.

Workloads are found by the owner references of pods and PodGroups, so that no further reads are
needed and any kind is supported.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from bindery.kube.objects.ownernames import Workload, makers
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import Pod


@dataclass(slots=True)
class Members:
    """The PodGroups written by the grouper for a workload, and its pods by UID."""

    groups: list[PodGroup] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)


def workloads(snapshot: ClusterSnapshot, namespace: str) -> dict[Workload, Members]:
    """Return the workloads that own pods and PodGroups of `namespace`, with their members."""
    found: defaultdict[Workload, Members] = defaultdict(Members)
    for pod in snapshot.pods:
        if pod.metadata.namespace == namespace:
            for maker in makers(pod):
                found[maker].pods[pod.metadata.uid] = pod
    for group in snapshot.groups:
        if group.metadata.namespace == namespace:
            pods = snapshot.pods_by_group.get((namespace, group.metadata.name), [])
            for owner in group.metadata.owner_references:
                members = found[Workload(owner.kind, owner.name)]
                members.groups.append(group)
                members.pods |= {pod.metadata.uid: pod for pod in pods}
    return dict(found)
