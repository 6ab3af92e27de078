"""Checks of offered devices share one read, and a read that never ends holds only its own term."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from bindery.binder.plugins.dra.offers import DEVICES_GONE, Offers
from bindery.binder.plugins.interface import PluginError
from bindery.kube.client import Client
from bindery.kube.objects.claims import AllocationResult
from bindery.kube.objects.devices import RESOURCE_SLICES, ResourceSlice

NODE = "n1"


def slices(*devices: str) -> list[ResourceSlice]:
    body = {
        "metadata": {"name": "slice"},
        "spec": {
            "driver": "driver",
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": name} for name in devices],
        },
    }
    return [RESOURCE_SLICES.decode(msgspec.json.encode(body))]


def planned(device: str) -> AllocationResult:
    result = {"request": "r", "driver": "driver", "pool": NODE, "device": device}
    return msgspec.convert({"devices": {"results": [result]}}, AllocationResult)


class FakeClient:
    """A fake of the API, made for tests: it answers when it is let, and counts the reads."""

    def __init__(self, *devices: str) -> None:
        self.devices, self.reads, self.open = devices, 0, asyncio.Event()

    async def list(self, *_: Any, **__: Any) -> list[ResourceSlice]:
        self.reads += 1
        await self.open.wait()
        return slices(*self.devices)


async def demand(offers: Offers, client: FakeClient, device: str = "gpu-0") -> None:
    await offers.demand(cast("Client", client), "claim", planned(device), NODE)


async def test_checks_at_the_same_time_share_one_read() -> None:
    offers, client = Offers(), FakeClient("gpu-0", "gpu-1")
    checks = [asyncio.create_task(demand(offers, client, f"gpu-{n % 2}")) for n in range(4)]
    await asyncio.sleep(0)
    client.open.set()

    await asyncio.gather(*checks)

    assert client.reads == 1
    await demand(offers, client)
    assert client.reads == 2


async def test_a_read_that_never_ends_holds_no_later_term() -> None:
    offers, ended = Offers(), FakeClient("gpu-0")
    checks = [asyncio.create_task(demand(offers, ended)) for _ in range(2)]
    await asyncio.sleep(0)
    for check in checks:
        check.cancel()
    await asyncio.gather(*checks, return_exceptions=True)
    following = FakeClient("gpu-0")
    following.open.set()

    async with asyncio.timeout(60):
        await demand(offers, following)

    assert following.reads == 1


async def test_one_check_that_is_cancelled_leaves_the_read_to_the_others() -> None:
    offers, client = Offers(), FakeClient("gpu-0")
    one, other = (asyncio.create_task(demand(offers, client)) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    client.open.set()

    await other

    assert client.reads == 1


async def test_a_device_that_is_not_offered_is_an_error() -> None:
    offers, client = Offers(), FakeClient("gpu-0")
    client.open.set()

    with pytest.raises(PluginError, match="gpu-1 of pool n1") as error:
        await demand(offers, client, "gpu-1")

    assert error.value.reason == DEVICES_GONE
