"""The cache of slices, classes, claims and their pods, between sessions.

Only the plugin's `observe` changes it; the session's ledger reads it. Invariant: `held` is the sum
of the allocations in the status of all claims.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bindery.api.quantity import QuantityError
from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.claims import (
    AllocationResult,
    DeviceClaim,
    Handover,
    ResourceClaim,
    is_extended,
)
from bindery.kube.objects.devices import DeviceClass, ResourceSlice
from bindery.kube.objects.sharedclaims import SharingGroup
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.model.content_key import content_key
from bindery.scheduler.plugins.dra.cel import Selectors
from bindery.scheduler.plugins.dra.claims import ClaimError, PreparedClaim, prepare
from bindery.scheduler.plugins.dra.extended import served_resources
from bindery.scheduler.plugins.dra.inventory import Inventory
from bindery.scheduler.plugins.dra.memo import remembered
from bindery.scheduler.plugins.dra.references import ClaimKey
from bindery.scheduler.plugins.dra.usage import PoolId, Take, Usage, takes


@dataclass
class ClaimCache:
    """Slices, classes, claims, and pods with claims."""

    touched: list[PoolId] = field(default_factory=list)
    """Pools with changed usage, in order; shared by all usages of a session. Readers keep positions
    in it, so it only grows, until `NodeFit.freshen` clears it."""
    inventory: Inventory = field(default_factory=Inventory)
    classes: dict[str, DeviceClass] = field(default_factory=dict)
    claims: dict[ClaimKey, ResourceClaim] = field(default_factory=dict)
    groups: dict[ClaimKey, SharingGroup] = field(default_factory=dict)
    """PodGroups that pods may share claims in."""
    pods: dict[str, Pod] = field(default_factory=dict)
    """Pod UID -> pod, for unfinished pods with claims."""
    selectors: Selectors = field(default_factory=Selectors)
    version: int = 0
    """Counts the changes of slices and classes."""
    held: Usage = field(init=False)
    _entered: dict[ClaimKey, tuple[Take, ...]] = field(default_factory=dict)
    _decoded: dict[str, tuple[Mapping[str, Any], Handover]] = field(default_factory=dict)
    """Pod UID -> data for the binder, raw and decoded."""
    _prepared: dict[bytes, PreparedClaim | ClaimError] = field(default_factory=dict)
    _served: Mapping[str, str] = field(default_factory=dict)
    _served_at: int = 0

    def __post_init__(self) -> None:
        self.held = Usage(touched=self.touched)

    def observe(self, change: Change[KubeObject]) -> None:
        """Process a change of an object."""
        item, gone = change.object, change.type is EventType.DELETED
        if isinstance(item, Pod):
            self._pod(item, gone)
        elif isinstance(item, ResourceClaim):
            self._claim(item, gone)
        elif isinstance(item, SharingGroup):
            self._group(item, gone)
        elif isinstance(item, ResourceSlice):
            self.version += 1
            if gone:
                self.inventory.remove(item.metadata.name)
            else:
                self.inventory.put(item)
        elif isinstance(item, DeviceClass):
            self.version += 1
            self._prepared.clear()  # prepared claims have the selectors of their classes
            if gone:
                self.classes.pop(item.metadata.name, None)
            else:
                self.classes[item.metadata.name] = item

    def prepared(self, spec: DeviceClaim) -> PreparedClaim:
        """Return `spec`, prepared for the search; equal specs give the same object.

        Raises:
            ClaimError: the claim cannot be allocated, whatever is free.
        """
        return remembered(
            self._prepared,
            content_key(spec),
            ClaimError,
            lambda: prepare(spec, self.classes, self.selectors),
        )

    def served(self) -> Mapping[str, str]:
        """Return extended resource -> device class that serves it."""
        if self._served_at != self.version:
            self._served_at, self._served = self.version, served_resources(self.classes.values())
        return self._served

    def extended_claim(self, pod: Pod) -> ResourceClaim | None:
        """Return the claim for the extended resources of a pod on a node; None without one."""
        status = pod.status.extended_resource_claim_status
        if status is None or not pod.spec.node_name:
            return None
        claim = self.claims.get(ClaimKey(pod.metadata.namespace, status.resource_claim_name))
        is_its = claim is not None and is_extended(claim, pod.metadata.uid)
        return claim if is_its else None

    def decoded(
        self, handed_over: Iterable[tuple[str, Mapping[str, Any]]]
    ) -> Iterator[tuple[str, Handover]]:
        """Yield pod UID and decoded data for the binder; each object is decoded only once."""
        # A new dict drops the pods that are no longer on their way.
        former, self._decoded = self._decoded, {}
        for uid, data in handed_over:
            cached = former.get(uid)
            if cached is None or cached[0] is not data:
                try:
                    cached = (data, msgspec.convert(data, Handover))
                except msgspec.ValidationError:  # another version wrote it; the binder refuses it
                    continue
            self._decoded[uid] = cached
            yield uid, cached[1]

    def _pod(self, pod: Pod, gone: bool) -> None:
        has_claims = pod.spec.resource_claims or pod.status.extended_resource_claim_status
        if gone or pod.status.phase in ENDED_POD_PHASES or not has_claims:
            self.pods.pop(pod.metadata.uid, None)
        else:
            self.pods[pod.metadata.uid] = pod

    def _group(self, group: SharingGroup, gone: bool) -> None:
        key = ClaimKey(group.metadata.namespace, group.metadata.name)
        known = self.groups.get(key)
        if not gone:
            self.groups[key] = group
        elif known is not None and known.metadata.uid == group.metadata.uid:
            del self.groups[key]

    def _claim(self, claim: ResourceClaim, gone: bool) -> None:
        key = ClaimKey(claim.metadata.namespace, claim.metadata.name)
        # Withdraw exactly what was entered: the new status may differ from the old one.
        self.held.enter(self._entered.pop(key, ()), -1)
        if gone:
            self.claims.pop(key, None)
            return
        self.claims[key] = claim
        if claim.status.allocation is not None:
            taken = self._entered[key] = readable_takes(claim.status.allocation)
            self.held.enter(taken, 1)


def readable_takes(allocation: AllocationResult) -> tuple[Take, ...]:
    """Return the takes of `allocation`; if its capacities are invalid, its whole devices."""
    try:
        return takes(allocation)
    except QuantityError:
        # The safe side: no other claim gets a share of a device with unknown usage.
        results = [
            msgspec.structs.replace(each, share_id=None) for each in allocation.devices.results
        ]
        devices = msgspec.structs.replace(allocation.devices, results=results)
        return takes(msgspec.structs.replace(allocation, devices=devices))
