"""The binder's small view of pods and nodes, updated by watches.

`api_adapter` reads it in every check, so that a gang needs no requests. Only the metadata of pods
that can still be bound is watched, so running pods use neither memory nor events. Other pods are
read from the API server.
"""

from typing import Final

import msgspec

from bindery.api.states import ENDED_POD_PHASES
from bindery.binder.outcome.ports import PodView
from bindery.kube.bindings import void_bindings
from bindery.kube.client import Client
from bindery.kube.errors import ConflictError, NotFoundError
from bindery.kube.objects.resources import NODES, PODS
from bindery.kube.objects.watched import KubeObject
from bindery.kube.watches.reflector import Reflector

_CAN_BE_BOUND: Final = "spec.nodeName=,status.phase=Pending"
"""Field selector of pods for which a check needs only the metadata."""


class SlimMeta(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The part of `metav1.ObjectMeta` that identifies an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None


class SlimObject(KubeObject, frozen=True, rename="camel", kw_only=True):
    """An object of which only the existence matters."""

    metadata: SlimMeta = msgspec.field(default_factory=SlimMeta)  # type: ignore[assignment]  # on purpose fewer fields: labels and annotations are most of the memory


class SlimPodSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The pod's node."""

    node_name: str = ""


class SlimPodStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """The pod's phase."""

    phase: str = ""


class SlimPod(SlimObject, frozen=True, rename="camel", kw_only=True):
    """The fields of a pod that binding needs."""

    spec: SlimPodSpec = msgspec.field(default_factory=SlimPodSpec)
    status: SlimPodStatus = msgspec.field(default_factory=SlimPodStatus)


SLIM_PODS: Final = PODS.decoded_as(SlimPod)
SLIM_UNBOUND_PODS: Final = PODS.decoded_as(SlimObject, partial=True)
SLIM_NODES: Final = NODES.decoded_as(SlimObject, partial=True)


class ClusterView:
    """The pods that wait for a node, and the nodes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.pods: Final = Reflector(client, SLIM_UNBOUND_PODS, field_selector=_CAN_BE_BOUND)
        self.nodes: Final = Reflector(client, SLIM_NODES)

    async def wait_synced(self) -> None:
        """Wait until both have been listed once."""
        await self.pods.synced.wait()
        await self.nodes.synced.wait()

    def is_healthy(self) -> bool:
        """Whether both are up to date."""
        return self.pods.healthy() and self.nodes.healthy()

    async def find_pod(self, namespace: str, name: str, uid: str) -> PodView | None:
        """Return the pod of that name; from memory if memory shows the wanted, unbound pod."""
        pod = self.pods.objects.get((namespace, name))
        if pod is not None and pod.metadata.uid == uid and pod.metadata.deletion_timestamp is None:
            version = pod.metadata.resource_version
            return PodView(namespace, name, uid, node="", ending=False, version=version)
        return await self.read_pod(namespace, name)

    async def read_pod(self, namespace: str, name: str) -> PodView | None:
        """Return the pod of that name from the API server."""
        try:
            return _view(await self._client.get(SLIM_PODS, name, namespace))
        except NotFoundError:
            return None

    async def void_bindings(self, namespace: str, name: str, uid: str) -> PodView | None:
        """Write to the pod, so that bindings of its earlier versions are refused; return it."""
        try:
            return _view(await void_bindings(self._client, SLIM_PODS, namespace, name, uid))
        except (NotFoundError, ConflictError):
            return await self.read_pod(namespace, name)

    async def node_exists(self, name: str) -> bool:
        """Return whether the node exists and is not being deleted."""
        node = self.nodes.objects.get(("", name))
        if node is None:
            try:
                node = await self._client.get(SLIM_NODES, name)
            except NotFoundError:
                return False
        return node.metadata.deletion_timestamp is None


def _view(pod: SlimPod) -> PodView:
    meta = pod.metadata
    return PodView(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        node=pod.spec.node_name,
        ending=meta.deletion_timestamp is not None or pod.status.phase in ENDED_POD_PHASES,
        version=meta.resource_version,
    )
