"""A fake of a CSI driver's external-provisioner: creates empty volumes.

The protocol is that of sig-storage-lib-external-provisioner: it waits until the volume controller
has named it on the claim and the scheduler has named the node, creates a volume that refers to the
claim, and leaves the binding to the controller. When it cannot make one for the node, it takes the
node's name from the claim again, and the pod is planned again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bindery.api.names import HOSTNAME_LABEL
from bindery.kube.client import Client
from bindery.kube.errors import AlreadyExistsError, KubeError, NotFoundError
from bindery.kube.objects.storage import CLAIMS, VOLUMES, PersistentVolumeClaim
from bindery.kube.watches.reflector import Reflector
from bindery.kube.watches.store import Change, EventType

PROVISIONER = "volume.kubernetes.io/storage-provisioner"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
_PAUSE_S = 0.5


@dataclass(eq=False)
class ProvisionerStandIn:
    """Serves claims for the driver `name`, of one namespace or, without one, of all."""

    client: Client
    namespace: str
    name: str
    full_nodes: set[str] = field(default_factory=set)
    """Nodes for which it can make nothing."""
    draw_delay_s: Callable[[], float] = lambda: 0.0
    """Draws how long it works for a claim; it serves one after the other."""
    refuses: Callable[[], bool] = lambda: False
    """Whether it cannot make the next volume, wherever that is."""
    made: dict[str, str] = field(default_factory=dict)
    """Claim -> the node for which its volume was made."""
    refused: list[str] = field(default_factory=list)
    """Nodes that it has taken from claims again."""
    _claims: asyncio.Queue[PersistentVolumeClaim] = field(default_factory=asyncio.Queue)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["ProvisionerStandIn"]:
        """Serve while the body runs."""
        reflector = Reflector(self.client, CLAIMS, self._take, namespace=self.namespace)
        tasks = [asyncio.create_task(reflector.run()), asyncio.create_task(self._work())]
        try:
            await reflector.synced.wait()
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, change: Change[PersistentVolumeClaim]) -> None:
        if change.type is not EventType.DELETED:
            self._claims.put_nowait(change.object)

    async def _work(self) -> None:
        while True:
            claim = await self._claims.get()
            try:
                await self._serve(claim)
            except KubeError:  # the API server is away: as the real one, it tries again
                await asyncio.sleep(_PAUSE_S)
                self._claims.put_nowait(claim)

    async def _serve(self, claim: PersistentVolumeClaim) -> None:
        annotations = claim.metadata.annotations
        if annotations.get(PROVISIONER) != self.name or claim.spec.volume_name:
            return
        node = annotations.get(SELECTED_NODE)
        if node is not None:
            await asyncio.sleep(self.draw_delay_s())
        if node is not None and (node in self.full_nodes or self.refuses()):
            await self._refuse(claim, node)
        elif node is not None:
            await self._make(claim, node)

    async def _refuse(self, claim: PersistentVolumeClaim, node: str) -> None:
        self.refused.append(node)
        patch = {"metadata": {"annotations": {SELECTED_NODE: None}}}
        try:
            meta = claim.metadata
            await self.client.patch(CLAIMS, meta.name, patch, namespace=meta.namespace)
        except NotFoundError:
            return

    async def _make(self, claim: PersistentVolumeClaim, node: str) -> None:
        meta = claim.metadata
        here = {"key": HOSTNAME_LABEL, "operator": "In", "values": [node]}
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": f"pvc-{meta.uid}",
                "annotations": {"pv.kubernetes.io/provisioned-by": self.name},
                "labels": {"made-by": meta.namespace},
            },
            "spec": {
                "capacity": claim.spec.resources.requests,
                "accessModes": claim.spec.access_modes,
                "storageClassName": claim.spec.storage_class_name,
                "persistentVolumeReclaimPolicy": "Retain",
                "csi": {"driver": self.name, "volumeHandle": meta.uid},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": meta.namespace,
                    "name": meta.name,
                    "uid": meta.uid,
                },
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            },
        }
        try:
            await self.client.create(VOLUMES, volume)
        except AlreadyExistsError:
            return
        self.made[meta.name] = node
