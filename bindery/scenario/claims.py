"""The work of Kubernetes' resource claim controller in a scenario.

Used by `creation` and `manifests/defaulting`. New pods get claims from templates, and the claims of
deleted pods are released.
"""

import uuid
from collections.abc import Mapping, Sequence

import msgspec

from bindery.kube.objects.claims import ConsumerReference, ResourceClaim, ResourceClaimTemplate
from bindery.kube.objects.podspec import PodResourceClaim
from bindery.kube.objects.watched import Meta, OwnerReference, Pod, PodClaimStatus
from bindery.kube.watches.store import Key
from bindery.scheduler.world import Objects


class ClaimKeeper:
    """Creates, reserves and releases the claims in `store`."""

    def __init__(self, store: Objects) -> None:
        self._store = store
        self.templates: dict[Key, ResourceClaimTemplate] = {}

    def complete(self, pod: Pod, names: Sequence[str]) -> Pod:
        """Return `pod` with its claims; create the claims that come from templates.

        `names`: of claims and templates; empty: the claims of its spec.
        """
        if names:
            asked = [
                PodResourceClaim(name=name, resource_claim_template_name=name)
                if (pod.metadata.namespace, name) in self.templates
                else PodResourceClaim(name=name, resource_claim_name=name)
                for name in names
            ]
            spec = msgspec.structs.replace(pod.spec, resource_claims=asked)
            pod = msgspec.structs.replace(pod, spec=spec)
        for entry in pod.spec.resource_claims or ():
            self._reserve(pod, entry.resource_claim_name or "")
        return self.renewed(pod) if pod.spec.resource_claims else pod

    def renewed(self, pod: Pod) -> Pod:
        """Return `pod` with new claims, from the templates that its spec refers to."""
        status = msgspec.structs.replace(pod.status, resource_claim_statuses=None)
        claims, pod = with_claims(msgspec.structs.replace(pod, status=status), self.templates)
        for claim in claims:
            self._store.put(claim)
        return pod

    def _reserve(self, pod: Pod, name: str) -> None:
        """Reserve an allocated claim for a pod that begins on a node."""
        claim = self._store.claims.get((pod.metadata.namespace, name))
        if not pod.spec.node_name or claim is None or claim.status.allocation is None:
            return
        users = [each for each in claim.status.reserved_for if each.uid != pod.metadata.uid]
        me = ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
        status = msgspec.structs.replace(claim.status, reserved_for=[*users, me])
        self._store.put(msgspec.structs.replace(claim, status=status))

    def release(self, pod: Pod) -> None:
        """Release the claims of `pod`; delete the claims created for it."""
        uid = pod.metadata.uid
        for claim in list(self._store.claims.values()):
            if any(owner.uid == uid for owner in claim.metadata.owner_references):
                self._store.delete(claim)
                continue
            left = [each for each in claim.status.reserved_for if each.uid != uid]
            if len(left) == len(claim.status.reserved_for):
                continue
            status = msgspec.structs.replace(
                claim.status,
                reserved_for=left,
                allocation=claim.status.allocation if left else None,
            )
            self._store.put(msgspec.structs.replace(claim, status=status))


def with_claims(
    pod: Pod, templates: Mapping[Key, ResourceClaimTemplate]
) -> tuple[list[ResourceClaim], Pod]:
    """Return the claims made from `templates` for `pod`, and the pod that names them."""
    made = list(pod.status.resource_claim_statuses or ())
    known = {each.name for each in made}
    claims: list[ResourceClaim] = []
    for entry in pod.spec.resource_claims or ():
        key = (pod.metadata.namespace, entry.resource_claim_template_name or "")
        if entry.name not in known and key in templates:
            name = f"{pod.metadata.name}-{entry.name}"
            claims.append(_claim_from(templates[key], pod, name))
            made.append(PodClaimStatus(name=entry.name, resource_claim_name=name))
    status = msgspec.structs.replace(pod.status, resource_claim_statuses=made or None)
    return claims, msgspec.structs.replace(pod, status=status)


def _claim_from(template: ResourceClaimTemplate, pod: Pod, name: str) -> ResourceClaim:
    """Return the claim called `name` that is made from `template` for `pod`."""
    return ResourceClaim(
        metadata=Meta(
            name=name,
            namespace=pod.metadata.namespace,
            uid=str(uuid.uuid5(uuid.NAMESPACE_URL, f"ResourceClaim/{name}/{pod.metadata.uid}")),
            owner_references=[owner_of_claims(pod)],
        ),
        spec=template.spec.spec,
    )


def owner_of_claims(pod: Pod) -> OwnerReference:
    """Return the owner reference of claims created for `pod`, also of volume claims."""
    meta = pod.metadata
    return OwnerReference(
        api_version="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True
    )
