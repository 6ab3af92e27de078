"""ProvisioningRequests of cluster-autoscaler (`autoscaling.x-k8s.io/v1`) as msgspec structs.

Read by the scheduler's plugin `provisioning`, written by `scheduler.status`. The rules are those of
`watched`: frozen, and only the fields that are read.
"""

from typing import Final

import msgspec

from bindery.api.names import API_VERSION
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import Condition, KubeObject, OwnerReference

ACCEPTED: Final = "Accepted"
PROVISIONED: Final = "Provisioned"
ENDED: Final = ("Failed", "BookingExpired", "CapacityRevoked")
"""The conditions after which the request brings no more nodes."""
_NOT_FOUND: Final = frozenset(
    {"CapacityIsNotFound", "PartialCapacityIsFound", "FailedToCheckCapacity"}
)
"""Reasons of `Provisioned=False`: the autoscaler has found no nodes, and will try again."""
_NOBODY: Final = OwnerReference()
MOST_POD_SETS: Final = 32


class TemplateReference(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The name of a PodTemplate."""

    name: str = ""


class PodSet(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Equal pods."""

    pod_template_ref: TemplateReference = TemplateReference()
    count: int = 0


class ProvisioningSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The requested pods; immutable."""

    pod_sets: list[PodSet] = msgspec.field(default_factory=list)
    provisioning_class_name: str = ""
    parameters: dict[str, str] | None = None


class ProvisioningStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The autoscaler's progress."""

    conditions: list[Condition] | None = None


class ProvisioningRequest(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """A request for the nodes of a set of pods."""

    spec: ProvisioningSpec = msgspec.field(default_factory=ProvisioningSpec)
    status: ProvisioningStatus = msgspec.field(default_factory=ProvisioningStatus)

    @property
    def group(self) -> OwnerReference:
        """The reference to the PodGroup that owns the request; empty without a PodGroup."""
        kind = (API_VERSION, "PodGroup")
        owners = self.metadata.owner_references
        return next((it for it in owners if (it.api_version, it.kind) == kind), _NOBODY)

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of type `kind` if its status is True."""
        found = (each for each in self.status.conditions or () if each.type == kind)
        return next((each for each in found if each.status == "True"), None)

    def ended(self) -> Condition | None:
        """Return the condition that ended the request; None while nodes may still come."""
        return next((it for kind in ENDED if (it := self.condition(kind)) is not None), None)

    def coming(self) -> Condition | None:
        """Return the condition that the request's nodes exist or will exist; None without one.

        An accepted request without found capacity provides no nodes for now.
        """
        if self.ended() is not None:
            return None
        if any(
            each.type == PROVISIONED and each.status == "False" and each.reason in _NOT_FOUND
            for each in self.status.conditions or ()
        ):
            return None
        return self.condition(PROVISIONED) or self.condition(ACCEPTED)


class PodTemplate(KubeObject, frozen=True, kw_only=True, gc=False):
    """A PodTemplate; only its metadata is read."""


PROVISIONING_REQUESTS: Final = Resource(
    "autoscaling.x-k8s.io",
    "v1",
    "provisioningrequests",
    "ProvisioningRequest",
    True,
    ProvisioningRequest,
)
POD_TEMPLATES: Final = Resource("", "v1", "podtemplates", "PodTemplate", True, PodTemplate)
