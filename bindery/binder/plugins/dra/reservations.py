"""Patches that reserve a resource claim for a pod, and patches that undo it. Pure.

Called by `plugin` with the current claim, so a patch is valid only for that version. Invariant: a
claim is deallocated only if no other consumer has reserved it, and only by the request that has
allocated it or whose consumer leaves last.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bindery.binder.outcome.ports import PodView
from bindery.binder.plugins.interface import PluginError
from bindery.kube.objects.claims import (
    FINALIZER,
    MOST_RESERVATIONS,
    AllocationResult,
    ClaimHandover,
    ConsumerReference,
    ResourceClaim,
)
from bindery.kube.objects.podspec import NodeSelector

CLAIM_CHANGED = "ResourceClaimChanged"
"""Failure reason: a claim differs from the plan. The pod is planned again."""

Patch = Mapping[str, Any]
"""A merge patch."""


def check(claim: ResourceClaim, planned: ClaimHandover, pod: PodView) -> None:
    """Check that `claim` is the planned one and that `pod` may use it.

    Raises:
        PluginError: the claim is another one, is being deleted, or was made for another pod.
    """
    name, meta = planned.name, claim.metadata
    if meta.uid != planned.uid:
        raise changed(f"resource claim {name} is not the one that was planned")
    if meta.deletion_timestamp is not None:
        raise changed(f"resource claim {name} is being deleted")
    user = consumer(planned, pod)
    if planned.is_own and not any(
        owner.controller and owner.uid == user.uid for owner in meta.owner_references
    ):
        maker = "its PodGroup" if planned.consumer is not None else "this pod"
        raise changed(f"resource claim {name} was not made for {maker}")


def consumer(planned: ClaimHandover, pod: PodView) -> ConsumerReference:
    """Return the consumer of the claim: the PodGroup that shares it, else the pod."""
    return planned.consumer or ConsumerReference(resource="pods", name=pod.name, uid=pod.uid)


def check_reserved(claim: ResourceClaim, planned: ClaimHandover, pod: PodView) -> None:
    """Check that `claim` is allocated and reserved for `pod` or its PodGroup.

    Raises:
        PluginError: another client has removed the allocation or the reservation.
    """
    name, status = claim.metadata.name, claim.status
    if status.allocation is None:
        raise changed(f"resource claim {name} was deallocated before the pod was bound")
    if all(user.uid != consumer(planned, pod).uid for user in status.reserved_for):
        raise changed(f"the pod's reservation of resource claim {name} was removed")


def with_finalizer(claim: ResourceClaim) -> Patch | None:
    """Return the patch that protects an allocated claim from deletion; None if not needed."""
    if FINALIZER in claim.metadata.finalizers:
        return None
    return {"metadata": {"finalizers": [*claim.metadata.finalizers, FINALIZER]}}


def without_finalizer(claim: ResourceClaim) -> Patch | None:
    """Return the patch that allows `claim` to be deleted, if it has no allocation."""
    if claim.status.allocation is not None or FINALIZER not in claim.metadata.finalizers:
        return None
    return {"metadata": {"finalizers": [f for f in claim.metadata.finalizers if f != FINALIZER]}}


def reserved(
    claim: ResourceClaim, planned: ClaimHandover, pod: PodView, node_name: str, now: str
) -> Patch | None:
    """Return the status patch that allocates `claim` as planned and reserves it for `pod`.

    Args:
        claim: the current claim.
        planned: the scheduler's plan.
        pod: the pod that uses the claim.
        node_name: the pod's node.
        now: the time, in the API server's form.

    Raises:
        PluginError: the claim has another allocation, or too many consumers have reserved it.
    """
    status = claim.status
    users = status.reserved_for
    written: dict[str, Any] = {}
    if status.allocation is None:
        written["allocation"] = {
            **msgspec.to_builtins(planned.allocation),
            "allocationTimestamp": now,
        }
    elif not _serves(status.allocation, planned.allocation, node_name):
        raise changed(f"resource claim {planned.name} was allocated elsewhere in the meantime")
    me = consumer(planned, pod)
    if all(user.uid != me.uid for user in users):
        if len(users) >= MOST_RESERVATIONS:
            raise changed(
                f"resource claim {planned.name} is reserved by {MOST_RESERVATIONS} pods already"
            )
        written["reservedFor"] = _wire([*users, me])
    return {"status": written} if written else None


def released(claim: ResourceClaim, planned: ClaimHandover, pod: PodView) -> Patch | None:
    """Return the status patch that undoes `reserved`, whether or not that was written.

    The last consumer that leaves a claim also removes the allocation. Kubernetes' claim controller
    does the same, but only for reservations that it removes itself.
    """
    users = claim.status.reserved_for
    left = [user for user in users if user.uid != consumer(planned, pod).uid]
    written: dict[str, Any] = {}
    if len(left) < len(users):
        written["reservedFor"] = _wire(left) or None
    allocation = claim.status.allocation
    if allocation is not None and not left:
        is_mine = planned.is_new and _devices(allocation) == _devices(planned.allocation)
        if users or is_mine:
            written["allocation"] = None
    return {"status": written} if written else None


def _serves(allocation: AllocationResult, planned: AllocationResult, node_name: str) -> bool:
    """Return whether a pod on the node can use `allocation`."""
    if allocation.node_selector is None or allocation.node_selector == planned.node_selector:
        return True
    return _is_only(allocation.node_selector, node_name)


def _is_only(selector: NodeSelector, node_name: str) -> bool:
    """Return whether `selector` selects exactly the node, by its name."""
    return any(
        not term.match_expressions
        and [(f.key, f.operator, f.values) for f in term.match_fields or ()]
        == [("metadata.name", "In", [node_name])]
        for term in selector.node_selector_terms
    )


def _devices(allocation: AllocationResult) -> list[tuple[str, str, str, str, str | None]]:
    return [
        (each.request, each.driver, each.pool, each.device, each.share_id)
        for each in allocation.devices.results
    ]


def _wire(users: Sequence[ConsumerReference]) -> list[dict[str, Any]]:
    return [dict(msgspec.to_builtins(user)) for user in users]


def changed(message: str) -> PluginError:
    """Return the error about a claim that differs from the plan."""
    return PluginError(message, reason=CLAIM_CHANGED, permanent=True)
