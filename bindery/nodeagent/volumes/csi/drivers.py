"""Registered CSI drivers of the node, and what CSINode and Node have of them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bindery.nodeagent.volumes.csi.client import CALL_S, CsiDriver
from bindery.nodeagent.volumes.interface import MountError
from bindery.nodecore.volumes.actual import Failure

NODE_IDS: Final = "csi.volume.kubernetes.io/nodeid"
"""The annotation of the Node with the drivers' names for it."""
_LARGEST_LIMIT: Final = 2**31 - 1


@dataclass(frozen=True)
class DriverOnNode:
    """What a driver knows of the node.

    Attributes:
        node_id: the driver's name for the node.
        limit: how many of its volumes the node can have, 0 for no limit.
        topology: labels of the node: where the driver's volumes can be reached.
    """

    name: str
    node_id: str
    limit: int = 0
    topology: Mapping[str, str] = field(default_factory=dict)


class CsiDrivers:
    """The drivers that have registered. `timeout_s`: of a call."""

    def __init__(self, timeout_s: float = CALL_S) -> None:
        self._timeout_s = timeout_s
        self._sockets: dict[str, Path] = {}

    async def register(self, name: str, socket: Path) -> DriverOnNode:
        """Record a driver and return what it knows of the node.

        Raises:
            MountError: it does not answer; then it is not registered.
        """
        driver = CsiDriver(socket, self._timeout_s)
        info = await driver.info()
        self._sockets[name] = socket
        topology = dict(info.accessible_topology.segments)
        return DriverOnNode(name, info.node_id, int(info.max_volumes_per_node), topology)

    def unregister(self, name: str) -> None:
        """Forget a driver."""
        self._sockets.pop(name, None)

    def socket(self, name: str) -> Path | None:
        """Return the socket of a driver, None if it has not registered."""
        return self._sockets.get(name)

    def get(self, name: str) -> CsiDriver:
        """Return a driver; raises a transient MountError if it has not registered."""
        if name not in self._sockets:
            raise MountError(
                f"driver name {name} not found in the list of registered CSI drivers",
                Failure.TRANSIENT,
            )
        return CsiDriver(self._sockets[name], self._timeout_s)


def csi_node_drivers(
    known: Iterable[Mapping[str, object]], driver: DriverOnNode
) -> list[dict[str, object]]:
    """Return `spec.drivers` of the CSINode with the driver in place of an older entry."""
    entry: dict[str, object] = {
        "name": driver.name,
        "nodeID": driver.node_id,
        "topologyKeys": sorted(driver.topology),
    }
    if driver.limit > 0:
        entry["allocatable"] = {"count": min(driver.limit, _LARGEST_LIMIT)}
    others = [dict(one) for one in known if one.get("name") != driver.name]
    return [*others, entry]


def node_ids(annotation: str, driver: DriverOnNode) -> str:
    """Return the Node's annotation with the driver's name for the node."""
    return _written({**_read(annotation), driver.name: driver.node_id})


def without_node_id(annotation: str, driver: str) -> str | None:
    """Return the Node's annotation without the driver, None if no other is left."""
    left = {name: node_id for name, node_id in _read(annotation).items() if name != driver}
    return _written(left) if left else None


def _read(annotation: str) -> dict[str, str]:
    ids: dict[str, str] = json.loads(annotation) if annotation else {}
    return ids


def _written(ids: Mapping[str, str]) -> str:
    return json.dumps(dict(sorted(ids.items())), separators=(",", ":"))
