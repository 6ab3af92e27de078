"""HAMi's NVIDIA device plugin and the kubelet that calls it, played.

They play the other side of the handshake as HAMi v2.10.0 does: a pod that is bound to the node is
admitted, one after the other; each of its containers with a GPU is one Allocate, which finds out
for whom it is by the node's lock alone, erases a slot, and after the last one says success and
removes the lock. They know nothing of the binder, and tell whom they served for whom.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from bindery.api.hami import lock as locks
from bindery.api.hami import names, poddevices
from bindery.api.hami.vendortable import NVIDIA
from bindery.kube.client import Client
from bindery.kube.errors import ConflictError, NotFoundError
from bindery.kube.objects import Pod
from bindery.kube.resources import NODES, PODS
from bindery.kube.store import Change, EventType
from bindery.kube.watch import Reflector


class AllocateError(Exception):
    """An Allocate went wrong; the kubelet fails the pod for UnexpectedAdmissionError."""


@dataclass
class HamiDevicePlugin:
    """The plugin of one node. `works` False: it never answers, as one that hangs."""

    client: Client
    node: str
    works: bool = True
    served: list[tuple[str, str, str]] = field(default_factory=list)
    """Admitted pod, the pod it was served as, and its devices."""
    failed: list[str] = field(default_factory=list)
    admitted: asyncio.Event = field(default_factory=asyncio.Event)
    _arrived: asyncio.Queue[Pod] = field(default_factory=asyncio.Queue)
    _seen: set[str] = field(default_factory=set)

    async def run(self) -> None:
        """Watch for the node's pods and admit them until cancelled."""
        selector = f"spec.nodeName={self.node}"
        watch = asyncio.create_task(
            Reflector(self.client, PODS, self.take, field_selector=selector).run()
        )
        try:
            await self.serve()
        finally:
            watch.cancel()

    def take(self, change: Change[Pod]) -> None:
        """Take in what a watch tells of a pod of the node."""
        pod = change.object
        if change.type is not EventType.DELETED and pod.metadata.uid not in self._seen:
            self._seen.add(pod.metadata.uid)
            self._arrived.put_nowait(pod)

    async def serve(self) -> None:
        """Admit the pods that were taken in, in their order, until cancelled."""
        while True:
            pod = await self._arrived.get()
            if self.works:
                await self._admit(pod)

    async def _admit(self, pod: Pod) -> None:
        containers = [*(pod.spec.init_containers or ()), *pod.spec.containers]
        try:
            for container in containers:
                limits = (container.resources and container.resources.limits) or {}
                count = int(limits.get(NVIDIA.count_resource, "0"))
                if count:
                    await self._allocate(pod, count)
        except (AllocateError, NotFoundError) as error:
            self.failed.append(f"{pod.metadata.name}: {error}")
        self.admitted.set()

    async def _allocate(self, admitted: Pod, count: int) -> None:
        current = await self._current_pod()
        try:
            text = current.metadata.annotations.get(NVIDIA.to_allocate_key, "")
            devices, left = _erase_first(text, count)
            current = await self._annotate(current, {NVIDIA.to_allocate_key: left})
            # Before the lock is released: who sees it free may look whom it was for.
            self.served.append((admitted.metadata.name, current.metadata.name, devices))
            if "NVIDIA" not in current.metadata.annotations.get(NVIDIA.to_allocate_key, ""):
                await self._annotate(current, {names.BIND_PHASE: names.BindPhase.SUCCESS.value})
                await self._release(current)
        except AllocateError:
            await self._annotate(current, {names.BIND_PHASE: names.BindPhase.FAILED.value})
            await self._release(current)
            raise

    async def _current_pod(self) -> Pod:
        """Find the pod that the node is locked for; without a lock, any that may be meant."""
        node = await self.client.get(NODES, self.node)
        value = node.metadata.annotations.get(names.NODE_LOCK)
        if value is not None:
            lock = locks.decode(value)
            if not lock.is_anonymous:
                return await self.client.get(PODS, lock.name, lock.namespace)
        for pod in await self.client.list(PODS, field_selector=f"spec.nodeName={self.node}"):
            annotations = pod.metadata.annotations
            if (
                annotations.get(names.BIND_PHASE) in ("allocating", "success")
                and names.BIND_TIME in annotations
                and annotations.get(names.ASSIGNED_NODE) == self.node
            ):
                return pod
        raise AllocateError(f"no binding pod found on node {self.node}")

    async def _annotate(self, pod: Pod, annotations: dict[str, str]) -> Pod:
        patch: dict[str, Any] = {"metadata": {"annotations": annotations}}
        meta = pod.metadata
        return await self.client.patch(PODS, meta.name, patch, namespace=meta.namespace)

    async def _release(self, pod: Pod) -> None:
        """Remove the lock if it is the pod's: read, compare the end, write with the version."""
        while True:
            node = await self.client.get(NODES, self.node)
            value = node.metadata.annotations.get(names.NODE_LOCK)
            if value is None or not value.endswith(
                f",{pod.metadata.namespace},{pod.metadata.name}"
            ):
                return
            patch = {
                "metadata": {
                    "annotations": {names.NODE_LOCK: None},
                    "resourceVersion": node.metadata.resource_version,
                }
            }
            try:
                await self.client.patch(NODES, self.node, patch)
            except ConflictError:
                continue
            return


def _erase_first(text: str, count: int) -> tuple[str, str]:
    """Return the devices of the first slot that has some, and the text without them."""
    # A decoded text has one slot more than containers, and so has what is written back.
    slots = [*poddevices.decode(text), ()]
    index = next((i for i, slot in enumerate(slots) if slot), None)
    if index is None or len(slots[index]) != count:
        raise AllocateError(f"device number not matched in {text!r}")
    devices = poddevices.encode((slots[index],))
    slots[index] = ()
    return devices, poddevices.encode(tuple(slots))
