"""Reads the devices of the node at intervals, and keeps the node's annotations equal to them.

Run by `beside.gpuparts`. A source that fails changes nothing: the last known devices stay, because
pods hold them.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.http.outages import log_failure
from bindery.kube.objects.resources import NODES
from bindery.kube.objects.watched import Node
from bindery.nodeagent.devices import hamiregister
from bindery.nodeagent.devices.hamiregister import Sharing
from bindery.nodeagent.devices.inventory import (
    DeviceSource,
    DevicesUnreadableError,
    NodeGpu,
    with_missing,
)

_log: Final = structlog.get_logger(__name__)
_RETRY_S: Final = 5.0


class DeviceReporter:
    """The known GPUs of the node `name`. `node` returns its last seen state, if any.

    `sharing`: None if the GPUs are not shared, and so not published.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        source: DeviceSource,
        sharing: Sharing | None,
        node: Callable[[], Node | None],
        every_s: float,
    ) -> None:
        self._client, self._name, self.source = client, name, source
        self._sharing, self._node, self._every_s = sharing, node, every_s
        self.gpus: tuple[NodeGpu, ...] = ()
        self.known = asyncio.Event()
        """Set once the devices have been read."""
        self._changed = asyncio.Condition()

    async def run(self) -> None:
        """Read and publish until cancelled."""
        while True:
            done = await self._read() and await self._publish()
            await asyncio.sleep(self._every_s if done else min(_RETRY_S, self._every_s))

    async def wait_changed(self, known: tuple[NodeGpu, ...]) -> tuple[NodeGpu, ...]:
        """Wait until the GPUs differ from `known`, and return them."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.gpus != known)
        return self.gpus

    async def _read(self) -> bool:
        try:
            found = await self.source.read()
        except DevicesUnreadableError as error:
            _log.warning("the devices are not read", error=str(error))
            return False
        async with self._changed:
            self.gpus = with_missing(self.gpus, found)
            self.known.set()
            self._changed.notify_all()
        return True

    async def _publish(self) -> bool:
        if self._sharing is None:
            return True
        wanted = hamiregister.annotations(shared(self.gpus), self._sharing)
        node = self._node()
        if node is not None and wanted.items() <= node.metadata.annotations.items():
            return True
        try:
            await self._client.patch(NODES, self._name, {"metadata": {"annotations": wanted}})
        except KubeError as error:
            log_failure(_log, "the devices are not published", error, node=self._name)
            return False
        return True

    async def wait_known(self) -> None:
        """Wait until the devices were read once, as far as the source answers soon."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_RETRY_S):
                await self.known.wait()


def shared(gpus: tuple[NodeGpu, ...]) -> tuple[NodeGpu, ...]:
    """Return the GPUs that are shared. One in MIG mode is not: its instances isolate."""
    return tuple(gpu for gpu in gpus if not gpu.is_mig)
