"""Storage in a test's corner of the cluster: classes, volumes and claims, removed at its end.

Classes and volumes belong to the whole cluster, so their names begin with the corner's namespace
and they bear its label.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bindery.api.names import HOSTNAME_LABEL
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.storage import (
    CLAIMS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    VOLUMES,
    PersistentVolume,
    PersistentVolumeClaim,
)
from tests.e2e.support import Corner, Gang, wait_for

LABEL = "made-by"
NO_PROVISIONER = "kubernetes.io/no-provisioner"


@dataclass(frozen=True)
class Storage:
    """The storage of `corner`."""

    corner: Corner

    def full(self, name: str) -> str:
        return f"{self.corner.namespace}-{name}"

    @property
    def driver(self) -> str:
        return f"{self.corner.namespace}.csi.example.com"

    async def add_class(self, name: str, mode: str, provisioner: str = NO_PROVISIONER) -> str:
        body = {"provisioner": provisioner, "volumeBindingMode": mode}
        await self._create(STORAGE_CLASSES, self.full(name), body)
        return self.full(name)

    async def add_volume(self, name: str, storage: str, node: str | None, **spec: Any) -> str:
        """Create a volume, on `node` if it is a local one."""
        if node is not None:
            here = {"key": HOSTNAME_LABEL, "operator": "In", "values": [node]}
            terms = {"nodeSelectorTerms": [{"matchExpressions": [here]}]}
            spec = {"local": {"path": "/data"}, "nodeAffinity": {"required": terms}, **spec}
        else:
            spec = {"csi": {"driver": self.driver, "volumeHandle": name}, **spec}
        body = {
            "capacity": {"storage": storage},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            **spec,
        }
        await self._create(VOLUMES, self.full(name), {"spec": body})
        return self.full(name)

    async def add_claim(
        self, name: str, storage_class: str, storage: str = "1Gi", mode: str = "ReadWriteOnce"
    ) -> None:
        await self._create(CLAIMS, name, {"spec": claim_spec(storage_class, storage, mode)})

    async def add_attach_limit(self, node: str, count: int) -> None:
        driver = {"name": self.driver, "nodeID": node, "allocatable": {"count": count}}
        await self._create(CSI_NODES, node, {"spec": {"drivers": [driver]}})

    async def add_capacity(self, node: str, storage_class: str, capacity: str) -> None:
        body = {
            "storageClassName": storage_class,
            "capacity": capacity,
            "nodeTopology": {"matchLabels": {HOSTNAME_LABEL: node}},
        }
        await self._create(CSI_STORAGE_CAPACITIES, node, body)

    async def claim(self, name: str) -> PersistentVolumeClaim:
        return await self.corner.client.get(CLAIMS, name, self.corner.namespace)

    async def volume(self, full_name: str) -> PersistentVolume:
        return await self.corner.client.get(VOLUMES, full_name)

    async def wait_claim_bound(self, name: str) -> PersistentVolumeClaim:
        async def bound() -> PersistentVolumeClaim | None:
            claim = await self.claim(name)
            return claim if claim.status.phase == "Bound" else None

        found = await wait_for(bound, f"claim {name} bound")
        assert found is not None
        return found

    async def node_of(self, gang: Gang) -> str:
        (pod,) = await self.corner.pods(gang)
        return pod.spec.node_name

    async def clean(self) -> None:
        client, namespace = self.corner.client, self.corner.namespace
        for claim in await client.list(CLAIMS, namespace=namespace):
            await client.delete(CLAIMS, claim.metadata.name, namespace)
        for capacity in await client.list(CSI_STORAGE_CAPACITIES, namespace=namespace):
            await client.delete(CSI_STORAGE_CAPACITIES, capacity.metadata.name, namespace)
        kinds: tuple[Resource[Any], ...] = (VOLUMES, STORAGE_CLASSES, CSI_NODES)
        for kind in kinds:
            for item in await client.list(kind, label_selector=f"{LABEL}={namespace}"):
                await client.delete(kind, item.metadata.name)

    async def _create(self, kind: Resource[Any], name: str, body: Mapping[str, Any]) -> None:
        namespace = self.corner.namespace
        metadata = {"name": name, "labels": {LABEL: namespace}}
        whole = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {**metadata, "namespace": namespace} if kind.namespaced else metadata,
            **body,
        }
        await self.corner.client.create(kind, whole, namespace if kind.namespaced else "")


def claim_spec(
    storage_class: str, storage: str = "1Gi", mode: str = "ReadWriteOnce"
) -> dict[str, Any]:
    return {
        "accessModes": [mode],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": storage}},
    }


def using(*claims: str, **pod: Any) -> dict[str, Any]:
    """Return the part of a pod's spec that uses `claims`."""
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    return {"volumes": volumes, **pod}
