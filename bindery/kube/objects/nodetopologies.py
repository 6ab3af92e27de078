"""NodeResourceTopologies (`topology.node.k8s.io/v1alpha2`) as msgspec structs.

Exporters, such as the node agent, write one for each node, with the name of the node; the scheduler
reads them. The rules are those of `watched`: frozen, and only the fields that are read. Source of
the type: github.com/k8stopologyawareschedwg/noderesourcetopology-api v0.1.3.
"""

from typing import Final

import msgspec

from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject

NUMA_ZONE: Final = "Node"
"""`type` of a zone that is a NUMA node."""
ZONE_PREFIX: Final = "node-"
"""Prefix of the name of a NUMA zone; the number of the NUMA node follows."""
POLICY_ATTRIBUTE: Final = "topologyManagerPolicy"
"""An attribute with the topology manager's policy, in the kubelet's words."""
SCOPE_ATTRIBUTE: Final = "topologyManagerScope"
"""An attribute with the topology manager's scope: container or pod."""


class Cost(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The distance to another zone, as firmware reports it; 10 is local."""

    name: str = ""
    value: int = 0


class ZoneResource(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Amounts of a resource in a zone, as quantities of Kubernetes."""

    name: str = ""
    capacity: str | int = "0"
    allocatable: str | int = "0"
    available: str | int = "0"
    """Allocatable minus the amounts that pods hold."""


class Attribute(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A named text."""

    name: str = ""
    value: str = ""


class Zone(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """A part of a node, such as a NUMA node."""

    name: str = ""
    type: str = ""
    parent: str = ""
    costs: list[Cost] = msgspec.field(default_factory=list)
    attributes: list[Attribute] = msgspec.field(default_factory=list)
    resources: list[ZoneResource] = msgspec.field(default_factory=list)


class NodeResourceTopology(KubeObject, frozen=True, rename="camel", kw_only=True, gc=False):
    """The zones of the node that has the name of this object."""

    topology_policies: list[str] = msgspec.field(default_factory=list)
    """The legacy form of policy and scope, such as SingleNUMANodePodLevel."""
    zones: list[Zone] = msgspec.field(default_factory=list)
    attributes: list[Attribute] = msgspec.field(default_factory=list)

    def attribute(self, name: str) -> str | None:
        """Return the value of the first attribute with `name`; None if there is none."""
        return next((each.value for each in self.attributes if each.name == name), None)


NODE_RESOURCE_TOPOLOGIES: Final = Resource(
    "topology.node.k8s.io",
    "v1alpha2",
    "noderesourcetopologies",
    "NodeResourceTopology",
    False,
    NodeResourceTopology,
)
