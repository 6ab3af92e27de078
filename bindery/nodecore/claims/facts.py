"""What the DRA manager knows of pods and resource claims."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bindery.nodecore.errors import NodeCoreError


class ClaimError(NodeCoreError):
    """A resource claim cannot be prepared or unprepared; the caller tries again later."""


@dataclass(frozen=True)
class PodClaim:
    """A claim in a pod's spec; without `claim_name` it is generated from a template."""

    name: str
    claim_name: str | None = None
    is_generated: bool = False


@dataclass(frozen=True)
class Mapped:
    """A request of the claim for extended resources, and the container that it is for."""

    container: str
    resource: str
    request: str


@dataclass(frozen=True)
class ClaimingPod:
    """A pod, as far as its claims go.

    Attributes:
        generated: name in the pod -> the generated ResourceClaim, None if none is needed.
        uses: container -> the claims that it uses, with the request or "" for all requests.
        requested: container -> extended resources that it requests.
        extended_claim: the ResourceClaim for extended resources, None without one.
        mappings: the requests of that claim.
    """

    uid: str
    name: str
    namespace: str
    claims: Sequence[PodClaim] = ()
    generated: Mapping[str, str | None] = field(default_factory=dict)
    uses: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    requested: Mapping[str, frozenset[str]] = field(default_factory=dict)
    extended_claim: str | None = None
    mappings: Sequence[Mapped] = ()

    def claim_name(self, claim: PodClaim) -> str | None:
        """Return the name of a ResourceClaim, None for none; raises ClaimError before it exists."""
        if not claim.is_generated:
            return claim.claim_name
        if claim.name not in self.generated:
            raise ClaimError(f'pod "{self.namespace}/{self.name}": ResourceClaim not created yet')
        return self.generated[claim.name]

    def claim_names(self) -> list[str]:
        """Return the ResourceClaims of the pod; raises ClaimError if one is not generated yet."""
        names = [self.claim_name(claim) for claim in self.claims]
        return [name for name in (*names, self.extended_claim) if name is not None]

    def requests(self, container: str) -> dict[str, list[str]]:
        """Return the requests of each ResourceClaim that a container uses; "" is all of them.

        Raises:
            ClaimError: a claim is not generated yet.
        """
        found: dict[str, list[str]] = {}
        uses = self.uses.get(container, ())
        for claim in self.claims:
            wanted = [request for name, request in uses if name == claim.name]
            name = self.claim_name(claim) if wanted else None
            if name is not None:
                found.setdefault(name, []).extend(wanted)
        if self.extended_claim is not None:
            wanted = [
                one.request
                for one in self.mappings
                if one.container == container
                and one.resource in self.requested.get(container, frozenset())
            ]
            if wanted:
                found.setdefault(self.extended_claim, []).extend(wanted)
        return found

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> "ClaimingPod":
        """Return what the DRA manager reads of a pod's JSON."""
        metadata, spec = manifest.get("metadata", {}), manifest.get("spec", {})
        status = manifest.get("status", {})
        extended = status.get("extendedResourceClaimStatus") or {}
        containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        resources = {one.get("name", ""): one.get("resources") or {} for one in containers}
        return cls(
            uid=metadata.get("uid", ""),
            name=metadata.get("name", ""),
            namespace=metadata.get("namespace", "default"),
            claims=tuple(
                PodClaim(
                    one["name"],
                    one.get("resourceClaimName"),
                    is_generated=one.get("resourceClaimName") is None,
                )
                for one in spec.get("resourceClaims") or ()
            ),
            generated={
                one["name"]: one.get("resourceClaimName")
                for one in status.get("resourceClaimStatuses") or ()
            },
            uses={
                name: tuple(
                    (claim["name"], claim.get("request", "")) for claim in of.get("claims") or ()
                )
                for name, of in resources.items()
            },
            requested={
                name: frozenset(
                    resource
                    for resource, amount in (of.get("requests") or {}).items()
                    if str(amount) != "0"
                )
                for name, of in resources.items()
            },
            extended_claim=extended.get("resourceClaimName"),
            mappings=tuple(
                Mapped(one["containerName"], one["resourceName"], one["requestName"])
                for one in extended.get("requestMappings") or ()
            ),
        )


@dataclass(frozen=True)
class ResourceClaim:
    """A ResourceClaim of the API.

    Attributes:
        owner_uid: the UID of the pod that controls it, None without one.
        reserved_for: the UIDs of the pods that may use it.
        drivers: the drivers of its allocation; None if it is not allocated.
    """

    uid: str
    name: str
    namespace: str
    owner_uid: str | None = None
    reserved_for: frozenset[str] = frozenset()
    drivers: tuple[str, ...] | None = None

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> "ResourceClaim":
        """Return what the DRA manager reads of a ResourceClaim's JSON."""
        metadata, status = manifest.get("metadata", {}), manifest.get("status", {})
        allocation = status.get("allocation")
        results = ((allocation or {}).get("devices") or {}).get("results") or ()
        owners = metadata.get("ownerReferences") or ()
        return cls(
            uid=metadata.get("uid", ""),
            name=metadata.get("name", ""),
            namespace=metadata.get("namespace", "default"),
            owner_uid=next((one.get("uid") for one in owners if one.get("controller")), None),
            reserved_for=frozenset(
                one.get("uid", "")
                for one in status.get("reservedFor") or ()
                if one.get("resource", "pods") == "pods"
            ),
            drivers=None
            if allocation is None
            else tuple(sorted({one.get("driver", "") for one in results})),
        )
