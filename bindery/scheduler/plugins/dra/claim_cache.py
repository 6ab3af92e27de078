"""What is known of devices and claims between sessions, kept in step with their objects.

Written by the plugin's `observe` alone; read by the session's ledger. Invariant: `held` is the sum
of what the claims' own status says is allocated.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bindery.api.quantity import QuantityError
from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.claims import Allocation, DeviceClaim, Handover, ResourceClaim
from bindery.kube.devices import DeviceClass, ResourceSlice
from bindery.kube.objects import KubeObject, Pod
from bindery.kube.store import Change, EventType
from bindery.scheduler.model.content_key import content_key
from bindery.scheduler.plugins.dra.cel import Selectors
from bindery.scheduler.plugins.dra.claims import ClaimError, PreparedClaim, prepare
from bindery.scheduler.plugins.dra.inventory import Inventory
from bindery.scheduler.plugins.dra.references import ClaimKey
from bindery.scheduler.plugins.dra.usage import PoolId, Take, Usage, takes


@dataclass
class ClaimCache:
    """Slices, classes, claims, and the pods that refer to claims."""

    touched: list[PoolId] = field(default_factory=list)
    """Pools of which something was taken or given back; shared by all usages that are looked at
    together, and only ever appended to."""
    inventory: Inventory = field(default_factory=Inventory)
    classes: dict[str, DeviceClass] = field(default_factory=dict)
    claims: dict[ClaimKey, ResourceClaim] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    """Pod UID -> pod, of those that refer to claims and have not finished."""
    selectors: Selectors = field(default_factory=Selectors)
    version: int = 0
    """Grows with everything but pods and claims."""
    held: Usage = field(init=False)
    _entered: dict[ClaimKey, tuple[Take, ...]] = field(default_factory=dict)
    _decoded: dict[str, tuple[Mapping[str, Any], Handover]] = field(default_factory=dict)
    """Pod UID -> what was handed to the binder for it, as it came and decoded."""
    _prepared: dict[bytes, PreparedClaim | ClaimError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.held = Usage(touched=self.touched)

    def observe(self, change: Change[KubeObject]) -> None:
        """Take in a change of a kind that matters."""
        item, gone = change.object, change.type is EventType.DELETED
        if isinstance(item, Pod):
            self._pod(item, gone)
        elif isinstance(item, ResourceClaim):
            self._claim(item, gone)
        elif isinstance(item, ResourceSlice):
            self.version += 1
            if gone:
                self.inventory.remove(item.metadata.name)
            else:
                self.inventory.put(item)
        elif isinstance(item, DeviceClass):
            self.version += 1
            self._prepared.clear()
            if gone:
                self.classes.pop(item.metadata.name, None)
            else:
                self.classes[item.metadata.name] = item

    def prepared(self, spec: DeviceClaim) -> PreparedClaim:
        """Return `spec` made ready; equal specs give the same object.

        Raises:
            ClaimError: it cannot be allocated, whatever is free.
        """
        content = content_key(spec)
        cached = self._prepared.get(content)
        if cached is None:
            try:
                cached = prepare(spec, self.classes, self.selectors)
            except ClaimError as error:
                cached = error
            self._prepared[content] = cached
        if isinstance(cached, ClaimError):
            raise cached
        return cached

    def decoded(
        self, handed_over: Iterable[tuple[str, Mapping[str, Any]]]
    ) -> Iterator[tuple[str, Handover]]:
        """Yield pod UID and what was handed to the binder for it, each decoded once only."""
        former, self._decoded = self._decoded, {}
        for uid, data in handed_over:
            cached = former.get(uid)
            if cached is None or cached[0] is not data:
                try:
                    cached = (data, msgspec.convert(data, Handover))
                except msgspec.ValidationError:  # of another version: the binder refuses it too
                    continue
            self._decoded[uid] = cached
            yield uid, cached[1]

    def _pod(self, pod: Pod, gone: bool) -> None:
        if gone or pod.status.phase in ENDED_POD_PHASES or not pod.spec.resource_claims:
            self.pods.pop(pod.metadata.uid, None)
        else:
            self.pods[pod.metadata.uid] = pod

    def _claim(self, claim: ResourceClaim, gone: bool) -> None:
        key = ClaimKey(claim.metadata.namespace, claim.metadata.name)
        self.held.enter(self._entered.pop(key, ()), -1)
        if gone:
            self.claims.pop(key, None)
            return
        self.claims[key] = claim
        if claim.status.allocation is not None:
            taken = self._entered[key] = readable_takes(claim.status.allocation)
            self.held.enter(taken, 1)


def readable_takes(allocation: Allocation) -> tuple[Take, ...]:
    """Return what `allocation` takes; of one that cannot be read, whole devices."""
    try:
        return takes(allocation)
    except QuantityError:
        results = [
            msgspec.structs.replace(each, share_id=None) for each in allocation.devices.results
        ]
        devices = msgspec.structs.replace(allocation.devices, results=results)
        return takes(msgspec.structs.replace(allocation, devices=devices))
