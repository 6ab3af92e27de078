"""The fields of nodes that reviews of queues read: labels and resources.

Images and conditions of thousands of nodes are not decoded. `watching` watches the nodes.
"""

from typing import Final

import msgspec

from bindery.kube.objects.resources import NODES
from bindery.kube.objects.watched import KubeObject


class Offers(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a node."""

    allocatable: dict[str, str] | None = None


class OfferingNode(KubeObject, frozen=True, kw_only=True):
    """A node with its resources."""

    status: Offers = msgspec.field(default_factory=Offers)


OFFERING_NODES: Final = NODES.decoded_as(OfferingNode)
