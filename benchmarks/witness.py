"""Who sees when pods get their nodes: one watch, the same for every contender.

Used by `races`. It asks for metadata of pods that have a node, so that it costs the API server and
this machine little. An API server that is short of time ends watches that do not keep up; the
reflector goes on where it was.
"""

import asyncio
import time

from bindery.kube.client import Client
from bindery.kube.objects.resources import PODS, metadata_only
from bindery.kube.objects.watched import KubeObject
from bindery.kube.watches.reflector import Change, EventType, Reflector


class Witness:
    """Watches until `pods` pods of a namespace have nodes. Times are of `time.monotonic`."""

    def __init__(self, client: Client, namespace: str, pods: int) -> None:
        self._pods = pods
        self._reflector = Reflector(
            client,
            metadata_only(PODS),
            self._see,
            namespace=namespace,
            field_selector="spec.nodeName!=",
        )
        self.seen_s: dict[str, float] = {}
        """Pod -> when it was first seen with a node, in this order."""
        self._all_seen = asyncio.Event()

    @property
    def first_s(self) -> float:
        """When the first pod had a node."""
        return next(iter(self.seen_s.values()))

    @property
    def last_s(self) -> float:
        """When the last pod had a node."""
        return list(self.seen_s.values())[self._pods - 1]

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._reflector.run()

    async def prepare(self) -> None:
        """Wait until the watch begins.

        Raises:
            RuntimeError: a pod has a node already.
        """
        await self._reflector.synced.wait()
        if self.seen_s:
            raise RuntimeError(f"{len(self.seen_s)} pods are bound before the start")

    async def see_all(self, timeout_s: float) -> None:
        """Wait until all pods have nodes.

        Raises:
            RuntimeError: they have not after `timeout_s`.
        """
        try:
            await asyncio.wait_for(self._all_seen.wait(), timeout_s)
        except TimeoutError as error:
            text = f"{len(self.seen_s)} of {self._pods} pods have nodes after {timeout_s:.0f} s"
            raise RuntimeError(text) from error

    def _see(self, change: Change[KubeObject]) -> None:
        if change.type is EventType.ADDED:
            self.seen_s.setdefault(change.object.metadata.name, time.monotonic())
            if len(self.seen_s) == self._pods:
                self._all_seen.set()
