"""Finds the claims of a pod: claims by name, and claims made from templates.

A pod without its claims waits, with a message about the missing claim. Source: `Name` and
`IsForPod` of k8s.io/dynamic-resource-allocation resourceclaim 0.36.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bindery.kube.claims import ResourceClaim
from bindery.kube.objects import Pod


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
    """Whether the claim was made for this pod from a template."""


def references(pod: Pod, claims: Mapping[ClaimKey, ResourceClaim]) -> tuple[Reference, ...]:
    """Return the claims of `pod`, each once, in the pod's order.

    Raises:
        ClaimReferenceError: a claim is missing, is being deleted, or belongs to another pod.
    """
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
        key = ClaimKey(pod.metadata.namespace, name)
        claim = claims.get(key)
        if claim is None:
            raise ClaimReferenceError(f"resource claim {name} does not exist")
        if claim.metadata.deletion_timestamp is not None:
            raise ClaimReferenceError(f"resource claim {name} is being deleted")
        if is_own and not belongs_to(claim, pod.metadata.uid):
            raise ClaimReferenceError(f"resource claim {name} was not made for this pod")
        found[key] = Reference(key, claim, is_own)
    return tuple(found.values())


def belongs_to(claim: ResourceClaim, pod_uid: str) -> bool:
    """Return whether the pod is the controller of `claim`."""
    return any(
        owner.controller and owner.uid == pod_uid for owner in claim.metadata.owner_references
    )
