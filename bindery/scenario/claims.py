"""The claims of a scenario, and the work of Kubernetes' resource claim controller.

Called by `cluster`: it makes claims from templates for new pods, and frees what pods had reserved
that have gone. Invariant: the scheduler learns of every change through the same door as of others.
"""

import uuid
from collections.abc import Callable, Sequence

import msgspec

from bindery.kube.objects.claims import ConsumerReference, ResourceClaim, ResourceClaimTemplate
from bindery.kube.objects.podspec import PodResourceClaim
from bindery.kube.objects.watched import KubeObject, Meta, OwnerReference, Pod, PodClaimStatus
from bindery.kube.watches.store import Change, EventType

_Name = tuple[str, str]
"""Namespace and name."""


class ClaimKeeper:
    """All claims and templates, by name."""

    def __init__(self, apply: Callable[[Change[KubeObject]], None]) -> None:
        self._apply = apply
        self._claims: dict[_Name, ResourceClaim] = {}
        self._templates: dict[_Name, ResourceClaimTemplate] = {}

    def put(self, item: ResourceClaim | ResourceClaimTemplate) -> None:
        """Store a new or changed claim, or a template."""
        name = (item.metadata.namespace, item.metadata.name)
        if isinstance(item, ResourceClaimTemplate):
            self._templates[name] = item
            return
        kind = EventType.MODIFIED if name in self._claims else EventType.ADDED
        previous = self._claims.get(name)
        self._claims[name] = item
        self._apply(Change(kind, item, previous))

    def complete(self, pod: Pod, names: Sequence[str]) -> Pod:
        """Return `pod` with claims called `names`; create those of templates first.

        Without `names`: with those that its spec refers to.
        """
        if not names:
            for entry in pod.spec.resource_claims or ():
                self._reserve(pod, entry.resource_claim_name or "")
            return self.renewed(pod) if pod.spec.resource_claims else pod
        asked, made = [], []
        for name in names:
            template = self._templates.get((pod.metadata.namespace, name))
            if template is None:
                asked.append(PodResourceClaim(name=name, resource_claim_name=name))
                self._reserve(pod, name)
                continue
            asked.append(PodResourceClaim(name=name, resource_claim_template_name=name))
            claim = claim_from(template, pod, f"{pod.metadata.name}-{name}")
            made.append(PodClaimStatus(name=name, resource_claim_name=claim.metadata.name))
            self.put(claim)
        return msgspec.structs.replace(
            pod,
            spec=msgspec.structs.replace(pod.spec, resource_claims=asked),
            status=msgspec.structs.replace(pod.status, resource_claim_statuses=made),
        )

    def renewed(self, pod: Pod) -> Pod:
        """Return `pod` with new claims, from the templates that its spec refers to."""
        made: list[PodClaimStatus] = []
        for entry in pod.spec.resource_claims or ():
            key = (pod.metadata.namespace, entry.resource_claim_template_name or "")
            if key in self._templates:
                claim = claim_from(self._templates[key], pod, f"{pod.metadata.name}-{entry.name}")
                made.append(
                    PodClaimStatus(name=entry.name, resource_claim_name=claim.metadata.name)
                )
                self.put(claim)
        status = msgspec.structs.replace(pod.status, resource_claim_statuses=made or None)
        return msgspec.structs.replace(pod, status=status)

    def _reserve(self, pod: Pod, name: str) -> None:
        """Reserve an allocated claim for a pod that begins on a node."""
        claim = self._claims.get((pod.metadata.namespace, name))
        if not pod.spec.node_name or claim is None or claim.status.allocation is None:
            return
        users = [each for each in claim.status.reserved_for if each.uid != pod.metadata.uid]
        me = ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
        status = msgspec.structs.replace(claim.status, reserved_for=[*users, me])
        self.put(msgspec.structs.replace(claim, status=status))

    def release(self, pod: Pod) -> None:
        """Release the claims of `pod` and delete those created for it."""
        uid = pod.metadata.uid
        for name, claim in list(self._claims.items()):
            if any(owner.uid == uid for owner in claim.metadata.owner_references):
                del self._claims[name]
                self._apply(Change(EventType.DELETED, claim, claim))
                continue
            left = [each for each in claim.status.reserved_for if each.uid != uid]
            if len(left) == len(claim.status.reserved_for):
                continue
            status = msgspec.structs.replace(
                claim.status,
                reserved_for=left,
                allocation=claim.status.allocation if left else None,
            )
            self.put(msgspec.structs.replace(claim, status=status))


def claim_from(template: ResourceClaimTemplate, pod: Pod, name: str) -> ResourceClaim:
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
