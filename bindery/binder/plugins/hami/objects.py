"""Nodes with locks and pods that hold them, as this plugin watches them.

Decoded by `mirror` and `lock`. Other fields are skipped, because nodes' annotations can be large
and most pods have no annotations of HAMi.
"""

from typing import Final

import msgspec

from bindery.api.hami.names import CAMBRICON_LOCK, NODE_LOCK
from bindery.api.hami.vendor import Lock
from bindery.kube.objects.resources import NODES, PODS
from bindery.kube.objects.watched import KubeObject, Meta


class LockAnnotations(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The locks of a node; None for a free lock."""

    node: str | None = msgspec.field(name=NODE_LOCK, default=None)
    cambricon: str | None = msgspec.field(name=CAMBRICON_LOCK, default=None)


class LockedMeta(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The part of a node's metadata that changes of locks need."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: LockAnnotations = msgspec.field(default_factory=LockAnnotations)


class LockedNode(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A node with its locks."""

    metadata: LockedMeta = msgspec.field(default_factory=LockedMeta)  # type: ignore[assignment]  # on purpose fewer fields

    def lock(self, which: Lock) -> str | None:
        """Return the value of one of the node's locks."""
        annotations = self.metadata.annotations
        return annotations.cambricon if which is Lock.CAMBRICON else annotations.node


class HolderSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The pod's node."""

    node_name: str = ""


class HolderStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The pod's phase."""

    phase: str = ""


class HolderPod(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A pod that holds, held or wants a lock."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: HolderSpec = msgspec.field(default_factory=HolderSpec)
    status: HolderStatus = msgspec.field(default_factory=HolderStatus)


LOCKED_NODES: Final = NODES.decoded_as(LockedNode, partial=True)
# An unreadable pod is needed until its lock is released.
HOLDER_PODS: Final = PODS.decoded_as(HolderPod, held=lambda pod, _: pod)
