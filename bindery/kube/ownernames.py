"""The workloads that made a pod, by the names that its owner references show."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from bindery.kube.objects import Pod

_POD_TEMPLATE_HASH: Final = "pod-template-hash"
"""On a pod of a Deployment; its ReplicaSet is called like the Deployment and this."""

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
        """Return whether `kind` names its kind: in lower case, singular, plural or short."""
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
