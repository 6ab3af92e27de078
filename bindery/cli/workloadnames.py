"""Find the pods and PodGroups of a workload by its kind and name. Used by `subjects`.

Workloads are found by the owner references of pods and PodGroups, so that nothing is read for them
and any kind can be asked for.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bindery.kube.objects import Pod, PodGroup
from bindery.kube.snapshot import ClusterSnapshot

_POD_TEMPLATE_HASH: Final = "pod-template-hash"
"""On a pod of a Deployment; its ReplicaSet is called like the Deployment and this."""

_SHORT_NAMES: Final[Mapping[str, str]] = {
    "cj": "cronjob",
    "deploy": "deployment",
    "rs": "replicaset",
    "sts": "statefulset",
    "lws": "leaderworkerset",
}


class Workload(NamedTuple):
    """An owner of pods or PodGroups, by its kind and name."""

    kind: str
    name: str

    def is_of(self, kind: str) -> bool:
        """Return whether `kind` names its kind: in lower case, singular, plural or short."""
        singular = self.kind.lower()
        return _SHORT_NAMES.get(kind, kind) in (singular, f"{singular}s", f"{singular}es")


@dataclass(slots=True)
class Members:
    """What a workload has: PodGroups that the grouper wrote for it, and pods by UID."""

    groups: list[PodGroup] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)


def workloads(snapshot: ClusterSnapshot, namespace: str) -> dict[Workload, Members]:
    """Return the owners that the pods and PodGroups of `namespace` name, with their members."""
    found: defaultdict[Workload, Members] = defaultdict(Members)
    for pod in snapshot.pods:
        if pod.metadata.namespace == namespace:
            for maker in _makers(pod):
                found[maker].pods[pod.metadata.uid] = pod
    for group in snapshot.groups:
        if group.metadata.namespace == namespace:
            pods = snapshot.pods_by_group.get((namespace, group.metadata.name), [])
            for owner in group.metadata.owner_references:
                members = found[Workload(owner.kind, owner.name)]
                members.groups.append(group)
                members.pods |= {pod.metadata.uid: pod for pod in pods}
    return dict(found)


def _makers(pod: Pod) -> Iterator[Workload]:
    """Yield the controller of `pod`, and the owner of the controller as far as the pod shows it."""
    for owner in pod.metadata.owner_references:
        if not owner.controller:
            continue
        yield Workload(owner.kind, owner.name)
        ending = f"-{pod.metadata.labels.get(_POD_TEMPLATE_HASH, '')}"
        if owner.kind == "ReplicaSet" and ending != "-" and owner.name.endswith(ending):
            yield Workload("Deployment", owner.name.removesuffix(ending))
        # The Jobs of a CronJob are called like it and the time, in minutes.
        timed = re.fullmatch(r"(.+)-[0-9]{8,}", owner.name)
        if owner.kind == "Job" and timed is not None:
            yield Workload("CronJob", timed.group(1))
