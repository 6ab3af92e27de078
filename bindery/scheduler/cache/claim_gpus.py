"""The GPUs that pods have by resource claims (DRA), each claim counted at one of its pods.

Used by pod_shapes.py. Bound pods come before waiting ones, then the oldest counts. So the GPUs of a
shared claim move to the next pod when the first one goes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from bindery.kube.objects.claims import ResourceClaim
from bindery.kube.objects.watched import Pod
from bindery.scheduler.model.claimed_gpus import CountsClass, claimed_gpus
from bindery.scheduler.model.jobs import Uid

ClaimKey = tuple[str, str]
"""Namespace and name."""


class _User(NamedTuple):
    """A pod with a claim, in the order in which the claim is counted."""

    is_unbound: bool
    is_leaving: bool
    created: str
    name: str
    uid: Uid


class ClaimGpus:
    """The claims by pod. `counts_class`: whether devices of a DeviceClass count as GPUs."""

    def __init__(self, counts_class: CountsClass) -> None:
        self._counts_class = counts_class
        self._gpus: dict[ClaimKey, int] = {}
        """Claim -> its GPUs, without claims that have none."""
        self._users: dict[ClaimKey, dict[Uid, _User]] = {}
        self._claims: dict[Uid, tuple[ClaimKey, ...]] = {}
        """Pod -> its claims."""
        self._counted_at: dict[ClaimKey, Uid] = {}

    def of(self, uid: Uid) -> int:
        """Return the GPUs that are counted at a pod."""
        keys = self._claims.get(uid, ())
        return sum(self._gpus.get(key, 0) for key in keys if self._counted_at[key] == uid)

    def put_pod(self, pod: Pod) -> set[Uid]:
        """Note a pod of this scheduler; return the other pods with another number of GPUs."""
        meta, uid = pod.metadata, Uid(pod.metadata.uid)
        old = self._claims.get(uid, ())
        if not old and not pod.spec.resource_claims:  # nearly all pods
            return set()
        keys = tuple(dict.fromkeys(_claim_keys(pod)))
        self._claims[uid] = keys
        for key in keys:
            self._users.setdefault(key, {})[uid] = _User(
                is_unbound=not pod.spec.node_name,
                is_leaving=meta.deletion_timestamp is not None,
                created=meta.creation_timestamp or "",
                name=meta.name,
                uid=uid,
            )
        for key in set(old) - set(keys):
            self._users[key].pop(uid, None)
        return self._count_again({*old, *keys}) - {uid}

    def forget_pod(self, uid: Uid) -> set[Uid]:
        """Forget a pod that has ended or gone; return the pods with another number of GPUs."""
        keys = self._claims.pop(uid, ())
        for key in keys:
            self._users[key].pop(uid, None)
        return self._count_again(set(keys)) - {uid}

    def put_claim(self, claim: ResourceClaim, *, gone: bool) -> set[Uid]:
        """Note a new state of a claim; return the pods with another number of GPUs."""
        key = (claim.metadata.namespace, claim.metadata.name)
        gpus = 0 if gone else claimed_gpus(claim, self._counts_class)
        if gpus == self._gpus.pop(key, 0):
            changed = set()
        else:
            changed = {self._counted_at[key]} if key in self._counted_at else set()
        if gpus:
            self._gpus[key] = gpus
        return changed

    def _count_again(self, keys: set[ClaimKey]) -> set[Uid]:
        """Choose the pod at which each of `keys` counts; return the pods whose GPUs it changes."""
        changed: set[Uid] = set()
        for key in keys:
            before = self._counted_at.pop(key, None)
            after = min(self._users[key].values()).uid if self._users[key] else None
            if after is not None:
                self._counted_at[key] = after
            else:
                del self._users[key]
            if before != after and key in self._gpus:
                changed |= {uid for uid in (before, after) if uid is not None}
        return changed


def _claim_keys(pod: Pod) -> Iterator[ClaimKey]:
    """Yield the claims of `pod` that it names, or that were made for it."""
    made = {each.name: each for each in pod.status.resource_claim_statuses or ()}
    for each in pod.spec.resource_claims or ():
        name = each.resource_claim_name
        if name is None and each.name in made:
            name = made[each.name].resource_claim_name
        if name is not None:
            yield pod.metadata.namespace, name
