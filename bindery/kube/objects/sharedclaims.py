"""The fields of Kubernetes' PodGroups (`scheduling.k8s.io`) about shared resource claims.

The pods of such a PodGroup use its claims together, and the claim is reserved for the PodGroup as
one consumer, so that the limit of consumers does not limit gangs. Read by the scheduler's plugin
`dra`. Source: k8s.io/dynamic-resource-allocation 0.36, resourceclaim.go. The feature gate
DRAWorkloadResourceClaims enables the fields; without the gate, the API server drops the fields.
"""

from typing import Final

import msgspec

from bindery.kube.objects.claims import ConsumerReference
from bindery.kube.objects.podspec import PodResourceClaim
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject

GROUP: Final = "scheduling.k8s.io"
PLURAL: Final = "podgroups"
VERSIONS: Final = ("v1beta1", "v1alpha3", "v1alpha2")
"""The supported versions, the preferred first. All have the same fields for claims."""


class SharingSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The claims of a PodGroup."""

    resource_claims: list[PodResourceClaim] | None = None


class SharingGroup(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """A PodGroup of Kubernetes itself."""

    spec: SharingSpec = msgspec.field(default_factory=SharingSpec)

    def shares(self, claim: PodResourceClaim) -> bool:
        """Return whether `claim` of a pod equals a claim of the PodGroup."""
        return claim in (self.spec.resource_claims or ())

    @property
    def consumer(self) -> ConsumerReference:
        """The PodGroup as the consumer of a claim."""
        meta = self.metadata
        return ConsumerReference(resource=PLURAL, name=meta.name, uid=meta.uid, api_group=GROUP)


SHARING_GROUPS: Final = tuple(
    Resource(GROUP, version, PLURAL, "PodGroup", True, SharingGroup) for version in VERSIONS
)
