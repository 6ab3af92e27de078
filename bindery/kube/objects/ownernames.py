"""The workloads of pods and PodGroups, by the names that their owner references show."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from bindery.api.names import MADE_BY_GROUPER, MADE_BY_LABEL
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import OwnerReference, Pod

_POD_TEMPLATE_HASH: Final = "pod-template-hash"
"""A label on a pod of a Deployment: the name of the ReplicaSet is the name of the Deployment and
this label's value."""

_SHORT_NAMES: Final = {
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
        """Return whether `kind` is the owner's kind: in lower case, singular, plural or short."""
        singular = self.kind.lower()
        return _SHORT_NAMES.get(kind, kind) in (singular, f"{singular}s", f"{singular}es")


def makers(pod: Pod) -> Iterator[Workload]:
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


def grouped(group: PodGroup) -> OwnerReference | None:
    """Return the workload that the grouper made `group` for; None for a PodGroup of users."""
    meta = group.metadata
    if meta.labels.get(MADE_BY_LABEL) != MADE_BY_GROUPER or len(meta.owner_references) != 1:
        return None
    return meta.owner_references[0]


def workload_text(group: PodGroup) -> str:
    """Return the workload of `group` for users, such as `Job vis0`; "" without one.

    Of several PodGroups of one workload, only the first represents the workload: the grouper ends
    its name with the UID of the workload.
    """
    owner = grouped(group)
    if owner is None or not group.metadata.name.endswith(f"-{owner.uid[:8]}"):
        return ""
    return f"{owner.kind} {owner.name}"
