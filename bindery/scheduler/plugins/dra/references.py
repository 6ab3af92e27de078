"""Which claims a pod refers to: by name, or made for it from a template.

Used by the ledger. Source: `Name` and `IsForPod` of k8s.io/dynamic-resource-allocation
resourceclaim 0.36. A pod whose claims are not there yet waits, with a text that says for what.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bindery.kube.claims import ResourceClaim
from bindery.kube.objects import Pod


class ClaimKey(NamedTuple):
    """Names a claim."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ClaimReferenceError(Exception):
    """Why a pod's claims cannot be used now."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One claim of a pod."""

    key: ClaimKey
    claim: ResourceClaim
    is_own: bool
    """Whether it was made for this pod from a template."""


def references(pod: Pod, claims: Mapping[ClaimKey, ResourceClaim]) -> tuple[Reference, ...]:
    """Return the claims of `pod`, each once, in the pod's order.

    Raises:
        ClaimReferenceError: one of them is not there, is going, or is somebody else's.
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
                    f"waits for resource claim {each.name} to be made from template {template}"
                )
            if status.resource_claim_name is None:  # the template asks for nothing
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
    """Return whether the pod controls `claim`."""
    return any(
        owner.controller and owner.uid == pod_uid for owner in claim.metadata.owner_references
    )
