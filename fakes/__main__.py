"""`python -m fakes`: fake hardware for a demo, beside hollow nodes, until stopped.

Started by `make demo`. Nodes are told apart by how their names begin: on `hollow-` GPUs are
shared by reservation pods, `hami-` implements HAMi's protocol, `claimed-` offers devices to claims.
A storage class makes volumes for all.
"""

import argparse
import asyncio
import signal
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

from bindery.api.hami import nodedevices
from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.vendortable import NVIDIA
from bindery.kube.client import Client
from bindery.kube.errors import AlreadyExistsError
from bindery.kube.objects.devices import DEVICE_CLASSES, RESOURCE_SLICES
from bindery.kube.objects.resources import NODES, Resource
from bindery.kube.objects.storage import CSI_NODES, STORAGE_CLASSES
from bindery.observability.health import HealthServer
from bindery.observability.listening import Listening
from fakes.haminodes import HamiDevicePlugins
from fakes.provisioner import ProvisionerStandIn
from fakes.reservations import GpuDevicePlugins

SHARES_PER_CARD: Final = 10
_MODEL: Final = "NVIDIA-H100-80GB-HBM3"
_MEMORY_MIB: Final = 81920
_DRIVER: Final = "gpu.nvidia.com"
_STORAGE: Final = "csi.example.com"
_GPUS: Final = 8


def main() -> None:
    """Play until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m fakes", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="the administrator's")
    parser.add_argument("--hami", type=int, default=0, help="how many nodes hami-0, hami-1, ...")
    parser.add_argument("--claimed", type=int, default=0, help="how many nodes claimed-0, ...")
    parser.add_argument("--health-port", type=int, default=0)
    asyncio.run(_play(parser.parse_args()))


async def _play(given: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Client.connect(given.kubeconfig, user_agent="bindery-fakes/0")
        )
        for number in range(given.hami):
            await _register_cards(client, f"hami-{number}")
        await _create(client, DEVICE_CLASSES, _device_class())
        for number in range(given.claimed):
            await _create(client, RESOURCE_SLICES, _slice(f"claimed-{number}"))
            await _create(client, CSI_NODES, _csi_node(f"claimed-{number}"))
        await _create(client, STORAGE_CLASSES, _storage_class())
        await stack.enter_async_context(GpuDevicePlugins(client, "hollow-").play())
        await stack.enter_async_context(HamiDevicePlugins(client, "", prefix="hami-").at_work())
        await stack.enter_async_context(ProvisionerStandIn(client, "", _STORAGE).serving())
        await stack.enter_async_context(HealthServer(Listening(given.health_port), {}))
        await stop.wait()


async def _register_cards(client: Client, node: str) -> None:
    """Write onto `node` what HAMi's device plugin registers there."""
    cards = [
        NodeDevice(
            id=f"{node}-gpu-{index}", count=SHARES_PER_CARD, memory_mib=_MEMORY_MIB, cores=100,
            type=_MODEL, healthy=True, index=index,
        )
        for index in range(_GPUS)
    ]  # fmt: skip
    register = {NVIDIA.register_key: nodedevices.encode_json(cards)}
    await client.patch(NODES, node, {"metadata": {"annotations": register}})


async def _create(client: Client, resource: Resource[Any], body: dict[str, Any]) -> None:
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    with suppress(AlreadyExistsError):
        await client.create(resource, whole)


def _device_class() -> dict[str, Any]:
    selector = {"cel": {"expression": f'device.driver == "{_DRIVER}"'}}
    return {"metadata": {"name": _DRIVER}, "spec": {"selectors": [selector]}}


def _slice(node: str) -> dict[str, Any]:
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {"productName": {"string": _MODEL}},
            "capacity": {"memory": {"value": f"{_MEMORY_MIB}Mi"}},
        }
        for index in range(_GPUS)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": _DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": {"name": node}, "spec": spec}


def _csi_node(node: str) -> dict[str, Any]:
    """Return what a kubelet writes where no CSI driver is; it is stored with `drivers: null`."""
    return {"metadata": {"name": node}, "spec": {"drivers": []}}


def _storage_class() -> dict[str, Any]:
    return {
        "metadata": {"name": "standard"},
        "provisioner": _STORAGE,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


if __name__ == "__main__":
    main()
