"""A real node with the driver for shares of GPUs, whose GPUs a test writes into a file."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from bindery.kube.client import Client
from bindery.kube.objects.devices import RESOURCE_SLICES, ResourceSlice
from bindery.nodeagent.gpuclaims.slices import DRIVER
from bindery.nodeagent.sockets.definitions import dra_pb2 as api
from bindery.nodeagent.sockets.services import Peer
from devcluster import checkout, kubeconfig, nodeaccount
from devcluster.realnode import configuration
from devcluster.realnode.cluster import RealCluster
from devcluster.realnode.node import RealNode
from tests.e2e.support import Corner, wait_for

NAME: Final = "node-3"
SERVICE: Final = "shares"
CLASS: Final = "gpu-share"
EXAMPLE: Final = checkout.ROOT / "examples" / "devices" / "gpu-shares.yaml"
FIRST: Final = "GPU-11111111-aaaa-bbbb-cccc-000000000001"
SECOND: Final = "GPU-22222222-aaaa-bbbb-cccc-000000000002"
GPUS: Final[Sequence[Mapping[str, Any]]] = (
    {"uuid": FIRST, "index": 0, "model": "NVIDIA H100", "memoryMib": 81920, "numaNode": 0},
    {"uuid": SECOND, "index": 1, "model": "NVIDIA A100", "memoryMib": 40960},
)
_CDI: Final = "run/cdi"
_SERVICE: Final = api.DESCRIPTOR.services_by_name["DRAPlugin"]
_CALL_S: Final = 30.0


@dataclass(frozen=True)
class SharesNode:
    """The node."""

    node: RealNode

    def write(self, *gpus: Mapping[str, Any]) -> None:
        """Let the node have these GPUs."""
        target = self.node.shared / "gpus.yaml"
        new = target.with_suffix(".new")
        new.write_text(json.dumps({"gpus": gpus}))
        new.replace(target)

    def kill(self) -> None:
        """Kill the driver; it starts again unless it is held."""
        self.node.kill(Path(sys.executable).resolve().name)

    async def restart(self) -> None:
        """Kill the driver, and wait until the kubelet has registered it again."""
        before = self._registrations()
        self.kill()

        async def is_registered() -> bool:
            return self._registrations() > before

        await wait_for(is_registered, "the driver is registered again")

    def _registrations(self) -> int:
        return (self.node.logs / f"{SERVICE}.log").read_text().count("registered with the kubelet")

    def names(self) -> list[str]:
        """Return the names of the claims' CDI files, any of which the driver may be deleting."""
        return [path.name for path in (self.node.root / _CDI).glob(f"{DRIVER}-share_*")]

    def files(self) -> dict[str, str]:
        """Return the CDI files of claims: name -> content."""
        found = (self.node.root / _CDI).glob(f"{DRIVER}-share_*")
        return {path.name: path.read_text() for path in found}

    def stamps(self) -> dict[str, int]:
        """Return when each CDI file was written."""
        found = (self.node.root / _CDI).glob(f"{DRIVER}-share_*")
        return {path.name: path.stat().st_mtime_ns for path in found}

    async def prepare(self, *claims: api.Claim) -> api.NodePrepareResourcesResponse:
        """Ask the driver as the kubelet does."""
        request = api.NodePrepareResourcesRequest(claims=claims)
        async with Peer(self._socket(), _SERVICE) as peer:
            return await peer.call(
                "NodePrepareResources", request, api.NodePrepareResourcesResponse, _CALL_S
            )

    async def unprepare(self, *claims: api.Claim) -> api.NodeUnprepareResourcesResponse:
        request = api.NodeUnprepareResourcesRequest(claims=claims)
        async with Peer(self._socket(), _SERVICE) as peer:
            return await peer.call(
                "NodeUnprepareResources", request, api.NodeUnprepareResourcesResponse, _CALL_S
            )

    def _socket(self) -> Path:
        return self.node.root / "var/lib/kubelet/plugins" / DRIVER / "dra.sock"


@contextmanager
def added(cluster: RealCluster) -> Iterator[SharesNode]:
    """Start the node with the driver, and remove it afterwards."""
    plane = cluster.control_plane
    nodeaccount.apply(plane, {"claims": {"enabled": True}})
    node = cluster.add_node(cluster.plan(3, services={SERVICE: _service()}))
    token = nodeaccount.token(plane, NAME)
    authority = (plane.state_dir / "certificates" / "apiserver.crt").read_bytes()
    server = kubeconfig.Server(configuration.API_SERVER, authority)
    kubeconfig.write(node.shared / "shares.kubeconfig", server, "shares", token)
    shares = SharesNode(node)
    shares.write(*GPUS)
    yield shares
    cluster.nodes.pop(NAME).crash()
    plane.kubectl("delete", "node", NAME)


def _service() -> str:
    shared = configuration.SHARED
    command = (
        f"{sys.executable} -P -m bindery.cli.main nodeagent beside --claims "
        f"--node-name={NAME} --devices={shared}/gpus.yaml --devices-interval=0.5 "
        f"--kubeconfig={shared}/shares.kubeconfig"
    )
    wait = f"until [ -e {shared}/gpus.yaml ]; do sleep 0.1; done"
    return f"{wait}\nexport PYTHONPATH={checkout.ROOT} PYTHONDONTWRITEBYTECODE=1\nexec {command}"


async def slices(client: Client) -> list[ResourceSlice]:
    """Return the slices of the driver."""
    found = await client.list(RESOURCE_SLICES, field_selector=f"spec.driver={DRIVER}")
    return [one for one in found if one.spec.node_name == NAME]


async def wait_offered(corner: Corner, newer_than: int = 0) -> ResourceSlice:
    """Wait until the node has one slice, of a later generation, and return it."""

    async def it_is() -> ResourceSlice | None:
        match await slices(corner.client):
            case [one] if one.spec.pool.generation > newer_than:
                return one
        return None

    found = await wait_for(it_is, f"the slice of {NAME} is newer than generation {newer_than}")
    assert found is not None
    return found


def example(kind: str) -> dict[str, Any]:
    """Return the object of this kind in the example that users copy."""
    [found] = [each for each in yaml.safe_load_all(EXAMPLE.read_text()) if each["kind"] == kind]
    return dict(found)


def request(name: str = "gpu", *, count: int = 1, **capacity: str) -> dict[str, Any]:
    """Return a request for shares of the first GPU."""
    expression = f'device.attributes["{DRIVER}"].uuid == "{FIRST}"'
    exactly: dict[str, Any] = {
        "deviceClassName": CLASS,
        "count": count,
        "selectors": [{"cel": {"expression": expression}}],
    }
    if capacity:
        exactly["capacity"] = {"requests": capacity}
    return {"name": name, "exactly": exactly}
