"""Nodes with locks and pods that hold them, as this plugin watches them.

Decoded by `mirror` and `lock`. Everything else of these objects is skipped, as nodes' annotations
can be large and most pods have none of HAMi's.
"""

from typing import Final

import msgspec

from bindery.api.hami.names import CAMBRICON_LOCK, NODE_LOCK
from bindery.api.hami.vendor import Lock
from bindery.kube.objects.resources import NODES, PODS, Resource
from bindery.kube.objects.watched import KubeObject, Meta


class LockAnnotations(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The locks of a node; None if it is free."""

    node: str | None = msgspec.field(name=NODE_LOCK, default=None)
    cambricon: str | None = msgspec.field(name=CAMBRICON_LOCK, default=None)


class LockedMeta(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The part of a node's metadata that a lock is changed by."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: LockAnnotations = msgspec.field(default_factory=LockAnnotations)


class LockedNode(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A node, as far as its locks are concerned."""

    metadata: LockedMeta = msgspec.field(default_factory=LockedMeta)  # type: ignore[assignment]  # on purpose fewer fields

    def lock(self, which: Lock) -> str | None:
        """Return the value of one of its locks."""
        annotations = self.metadata.annotations
        return annotations.cambricon if which is Lock.CAMBRICON else annotations.node


class HolderSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Where the pod is."""

    node_name: str = ""


class HolderStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """How far the pod is."""

    phase: str = ""


class HolderPod(KubeObject, frozen=True, rename="camel", kw_only=True):
    """A pod that has, had or wants a lock."""

    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: HolderSpec = msgspec.field(default_factory=HolderSpec)
    status: HolderStatus = msgspec.field(default_factory=HolderStatus)


LOCKED_NODES: Final = Resource(
    NODES.group, NODES.version, NODES.plural, NODES.kind, NODES.namespaced, LockedNode, partial=True
)
HOLDER_PODS: Final = Resource(
    PODS.group,
    PODS.version,
    PODS.plural,
    PODS.kind,
    PODS.namespaced,
    HolderPod,
    held=lambda pod, _: pod,  # its lock is not left by somebody who is gone
)
