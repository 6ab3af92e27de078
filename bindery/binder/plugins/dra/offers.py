"""Checks the current ResourceSlices for planned devices.

Used by `plugin` before it allocates and right before a gang is bound. The slices are read from the
API server; concurrent checks for pods of a gang share one read.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from bindery.binder.plugins.interface import PluginError
from bindery.kube.client import Client
from bindery.kube.objects.claims import AllocationResult
from bindery.kube.objects.devices import RESOURCE_SLICES, ResourceSlice

DEVICES_GONE = "DevicesGone"
"""Failure reason: planned devices are no longer offered. The pod is planned again."""

_Device = tuple[str, str, str]
"""Driver, pool and device."""


@dataclass
class _Read:
    """A read that is under way, and how many checks wait for it."""

    task: asyncio.Task[list[ResourceSlice]]
    waiting: int = 0


class Offers:
    """Reads the devices that drivers offer."""

    def __init__(self) -> None:
        self._reads: dict[str, _Read] = {}
        """Field selector -> the running read."""

    async def demand(
        self, client: Client, claim_name: str, planned: AllocationResult, node_name: str
    ) -> None:
        """Check that the devices of `planned` are offered.

        Raises:
            PluginError: a device is not offered.
        """
        wanted = [(each.driver, each.pool, each.device) for each in planned.devices.results]
        here = offered(await self._read(client, f"spec.nodeName={node_name}"))
        elsewhere = [device for device in wanted if device not in here]
        for driver in sorted({driver for driver, _, _ in elsewhere}):
            found = offered(await self._read(client, f"spec.driver={driver}"))
            for _, pool, device in (each for each in elsewhere if each[0] == driver):
                if (driver, pool, device) not in found:
                    message = (
                        f"device {device} of pool {pool} and driver {driver}, planned for resource "
                        f"claim {claim_name}, is no longer offered"
                    )
                    raise PluginError(message, reason=DEVICES_GONE, permanent=True)

    async def _read(self, client: Client, selector: str) -> list[ResourceSlice]:
        read = self._reads.get(selector)
        if read is None:
            task = asyncio.ensure_future(client.list(RESOURCE_SLICES, field_selector=selector))
            read = self._reads[selector] = _Read(task)
            task.add_done_callback(lambda _: self._forget(selector, task))
        read.waiting += 1
        try:
            return await asyncio.shield(read.task)
        finally:
            read.waiting -= 1
            if not read.waiting:
                # A read of a term that is over would wait for ever, and the next term with it.
                read.task.cancel()
                self._forget(selector, read.task)

    def _forget(self, selector: str, task: asyncio.Task[list[ResourceSlice]]) -> None:
        read = self._reads.get(selector)
        if read is not None and read.task is task:
            del self._reads[selector]


def offered(slices: Iterable[ResourceSlice]) -> set[_Device]:
    """Return the devices in the newest generation of each pool among `slices`."""
    newest: dict[tuple[str, str], int] = {}
    found = list(slices)
    for each in found:
        key = each.spec.driver, each.spec.pool.name
        newest[key] = max(newest.get(key, 0), each.spec.pool.generation)
    return {
        (spec.driver, spec.pool.name, device.name)
        for spec in (each.spec for each in found)
        if spec.pool.generation == newest[spec.driver, spec.pool.name]
        for device in spec.devices
    }
