"""Registers CSI drivers: what the plugin manager, the CSINode and the Node have of them.

Source: the kubelet's registration handler for CSI and its manager of CSINodes, Kubernetes 1.36.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bindery.kube.client import Client
from bindery.kube.errors import AlreadyExistsError, KubeError, NotFoundError
from bindery.kube.objects.disks import MIGRATED_PROVISIONERS
from bindery.kube.objects.resources import NODES
from bindery.kube.objects.storage import CSI_NODES
from bindery.kube.objects.watched import KubeObject, Node
from bindery.nodeagent.volumes.csi.drivers import (
    NODE_IDS,
    CsiDrivers,
    DriverOnNode,
    csi_node_drivers,
    node_ids,
    without_node_id,
)
from bindery.nodecore.plugins import PluginError

ATTACHED_BY_CONTROLLER: Final = "volumes.kubernetes.io/controller-managed-attach-detach"
"""The annotation of the Nodes for which the attach-detach controller attaches volumes."""
MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"
"""The annotation of the CSINode with the in-tree plugins whose volumes go to CSI drivers."""
_MAJOR: Final = "1"


class DriversSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`CSINodeSpec`, with all that others have written."""

    drivers: list[dict[str, Any]] | None = None


class DriversOfNode(KubeObject, frozen=True, kw_only=True, gc=False):
    """`CSINode`."""

    spec: DriversSpec = msgspec.field(default_factory=DriversSpec)


_CSI_NODES: Final = CSI_NODES.decoded_as(DriversOfNode)


class NodeStorage:
    """Writes the CSI drivers of the node called `name` to the API. Methods raise KubeError."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name = client, name

    async def announce(self) -> None:
        """Let the controller attach volumes to the node, and make its CSINode."""
        marks = {"metadata": {"annotations": {ATTACHED_BY_CONTROLLER: "true"}}}
        await self._client.patch(NODES, self._name, marks)
        await self._ensure()

    async def add(self, driver: DriverOnNode) -> None:
        """Write what a driver knows of the node."""

        def into_node(node: Node) -> Mapping[str, Any]:
            labels = node.metadata.labels
            taken = [key for key, value in driver.topology.items()
                     if labels.get(key, value) != value]  # fmt: skip
            if taken:
                raise PluginError(f"detected topology value collision: {', '.join(taken)}")
            ids = node_ids(node.metadata.annotations.get(NODE_IDS, ""), driver)
            return {"metadata": {"annotations": {NODE_IDS: ids}, "labels": dict(driver.topology)}}

        await self._client.update(NODES, self._name, "", into_node)
        await self._ensure()
        await self._client.update(
            _CSI_NODES,
            self._name,
            "",
            lambda found: {"spec": {"drivers": csi_node_drivers(found.spec.drivers or (), driver)}},
        )

    async def remove(self, driver: str) -> None:
        """Remove a driver; labels of the node stay, as in the kubelet."""

        def from_csi_node(found: DriversOfNode) -> Mapping[str, Any] | None:
            known = found.spec.drivers or []
            others = [one for one in known if one.get("name") != driver]
            changes = len(others) != len(known)
            return {"spec": {"drivers": others}} if changes else None

        def from_node(node: Node) -> Mapping[str, Any] | None:
            text = node.metadata.annotations.get(NODE_IDS)
            ids = without_node_id(text or "", driver)
            return {"metadata": {"annotations": {NODE_IDS: ids}}} if ids != text else None

        try:
            await self._client.update(_CSI_NODES, self._name, "", from_csi_node)
            await self._client.update(NODES, self._name, "", from_node)
        except NotFoundError:
            return  # the node is gone, with all that is written there

    async def _ensure(self) -> None:
        node = await self._client.get(NODES, self._name)
        body = {
            "apiVersion": CSI_NODES.api_version,
            "kind": CSI_NODES.kind,
            "metadata": {
                "name": self._name,
                "annotations": {MIGRATED: ",".join(sorted(MIGRATED_PROVISIONERS))},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": self._name,
                     "uid": node.metadata.uid},
                ],
            },
            "spec": {"drivers": []},
        }  # fmt: skip
        try:
            await self._client.create(_CSI_NODES, body)
        except AlreadyExistsError:
            return


class CsiRegistration:
    """Serves the plugins of the type `CSIPlugin`; implements `PluginHandler`."""

    def __init__(self, drivers: CsiDrivers, storage: NodeStorage) -> None:
        self._drivers, self._storage = drivers, storage

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Check that a driver serves CSI 1; raises PluginError."""
        if not any(one.removeprefix("v").partition(".")[0] == _MAJOR for one in versions):
            raise PluginError(
                f'CSI driver "{name}" at {endpoint}: none of the versions '
                f"[{' '.join(versions)}] is supported"
            )

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Ask a driver about the node and write the answer; raises PluginError, MountError."""
        del versions  # only CSI 1 is spoken
        on_node = await self._drivers.register(name, Path(endpoint))
        try:
            await self._storage.add(on_node)
        except (KubeError, PluginError) as error:
            self._drivers.unregister(name)
            raise PluginError(
                f"error updating CSINode object with CSI driver info: {error}"
            ) from error

    async def deregister(self, name: str, endpoint: str) -> None:
        """Forget a driver, unless it has registered with another socket since."""
        if self._drivers.socket(name) != Path(endpoint):
            return
        self._drivers.unregister(name)
        try:
            await self._storage.remove(name)
        except KubeError as error:
            raise PluginError(f"error removing CSI driver {name} from CSINode: {error}") from error
