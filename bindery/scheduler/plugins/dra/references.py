"""Finds the claims of a pod: claims by name, claims made from templates, claims of its PodGroup.

A pod without its claims waits, with a message about the missing claim. Source: `Name` and
`IsForPod` of k8s.io/dynamic-resource-allocation resourceclaim 0.36.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bindery.kube.objects.claims import ConsumerReference, ResourceClaim
from bindery.kube.objects.sharedclaims import SharingGroup
from bindery.kube.objects.watched import Pod


class ClaimKey(NamedTuple):
    """The key of a claim."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ClaimReferenceError(Exception):
    """A claim of a pod cannot be used now."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One claim of a pod."""

    key: ClaimKey
    claim: ResourceClaim
    is_own: bool
    """Whether the claim was made for this pod, or its PodGroup, from a template."""
    consumer: ConsumerReference | None = None
    """The PodGroup for which the claim is reserved; None: the pod."""

    def user(self, pod_uid: str) -> str:
        """Return the UID of the consumer that reserves the claim for a pod."""
        return self.consumer.uid if self.consumer is not None else pod_uid


def references(
    pod: Pod,
    claims: Mapping[ClaimKey, ResourceClaim],
    groups: Mapping[ClaimKey, SharingGroup],
) -> tuple[Reference, ...]:
    """Return the claims of `pod`, each once, in the pod's order.

    Raises:
        ClaimReferenceError: a claim is missing, is being deleted, or belongs to another pod; or
            the PodGroup is missing that may share it.
    """
    group = _group(pod, groups)
    made = {each.name: each for each in pod.status.resource_claim_statuses or ()}
    found: dict[ClaimKey, Reference] = {}
    for each in pod.spec.resource_claims or ():
        name, is_own = each.resource_claim_name, False
        if name is None:
            status = made.get(each.name)
            if status is None:
                template = each.resource_claim_template_name
                raise ClaimReferenceError(
                    f"waits for resource claim {each.name} to be created from template {template}"
                )
            if status.resource_claim_name is None:  # Kubernetes made no claim, as none is needed
                continue
            name, is_own = status.resource_claim_name, True
        consumer = group.consumer if group is not None and group.shares(each) else None
        key = ClaimKey(pod.metadata.namespace, name)
        claim = claims.get(key)
        if claim is None:
            raise ClaimReferenceError(f"resource claim {name} does not exist")
        if claim.unreadable:
            raise ClaimReferenceError(f"resource claim {name} cannot be read: {claim.unreadable}")
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimReferenceError(f"resource claim {name} is being deleted")
        user = consumer.uid if consumer is not None else pod.metadata.uid
        if is_own and not belongs_to(claim, user):
            maker = "its PodGroup" if consumer is not None else "this pod"
            raise ClaimReferenceError(f"resource claim {name} was not made for {maker}")
        found[key] = Reference(key, claim, is_own, consumer)
    return tuple(found.values())


def belongs_to(claim: ResourceClaim, uid: str) -> bool:
    """Return whether the pod or PodGroup with `uid` is the controller of `claim`."""
    return any(owner.controller and owner.uid == uid for owner in claim.metadata.owner_references)


def _group(pod: Pod, groups: Mapping[ClaimKey, SharingGroup]) -> SharingGroup | None:
    """Return the PodGroup that may share claims with `pod`; None if the pod names none."""
    if pod.spec.scheduling_group is None or not pod.spec.resource_claims:
        return None
    key = ClaimKey(pod.metadata.namespace, pod.spec.scheduling_group.pod_group_name)
    group = groups.get(key)
    if group is None:
        raise ClaimReferenceError(
            f"PodGroup {key.name} of scheduling.k8s.io does not exist, which may share its claims"
        )
    return group
