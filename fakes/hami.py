"""A fake of HAMi's NVIDIA device plugin and of the kubelet that calls it.

They play the other side of the handshake as HAMi v2.10.0 does: a pod that is bound to the node is
admitted, one after the other; each of its containers with a GPU is one Allocate, which finds
its pod by the node's lock alone, erases a slot, and after the last one reports success and removes
the lock. They know nothing of the binder, and record which pod got the devices of which.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from bindery.api.hami import lock as locks
from bindery.api.hami import names
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.vendortable import BY_WORD, NVIDIA
from bindery.kube.client import Client
from bindery.kube.errors import ConflictError, NotFoundError, UnreachableError
from bindery.kube.objects.resources import NODES, PODS
from bindery.kube.objects.watched import Pod
from bindery.kube.watches.reflector import Reflector
from bindery.kube.watches.store import Change, EventType

_FIELDS: Final = 4
_UNREACHABLE_PAUSE_S: Final = 0.5


class AllocateError(Exception):
    """An Allocate went wrong; the kubelet fails the pod for UnexpectedAdmissionError."""


@dataclass
class HamiDevicePlugin:
    """The plugin of one node. With `works` False it never answers."""

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
        """Apply a watch event of a pod of the node."""
        pod = change.object
        if change.type is not EventType.DELETED and pod.metadata.uid not in self._seen:
            self._seen.add(pod.metadata.uid)
            self._arrived.put_nowait(pod)

    async def serve(self) -> None:
        """Admit the pods that were taken in, in their order, until cancelled."""
        while True:
            pod = await self._arrived.get()
            if self.works:
                await self._admit_in_time(pod)

    async def _admit_in_time(self, pod: Pod) -> None:
        """Admit `pod` once the API server answers; the kubelet's call waits for it."""
        while True:
            with suppress(UnreachableError):
                await self.admit(pod)
                return
            await asyncio.sleep(_UNREACHABLE_PAUSE_S)

    async def admit(self, pod: Pod) -> str:
        """Allocate for each container of `pod`; return why an Allocate went wrong, else ""."""
        problem = ""
        containers = [*(pod.spec.init_containers or ()), *pod.spec.containers]
        try:
            for container in containers:
                limits = (container.resources and container.resources.limits) or {}
                count = int(limits.get(NVIDIA.count_resource, "0"))
                if count:
                    await self._allocate(pod, count)
        except AllocateError as error:
            problem = str(error)
            self.failed.append(f"{pod.metadata.name}: {problem}")
        self.admitted.set()
        return problem

    async def _allocate(self, admitted: Pod, count: int) -> None:
        current = await self._current_pod()
        try:
            devices, left = _erase_first(current.metadata.annotations, count)
            current = await self._annotate(current, {NVIDIA.to_allocate_key: left})
        except (AllocateError, NotFoundError) as error:
            await self._end(current, names.BindPhase.FAILED)
            raise AllocateError(str(error)) from error
        # Before the lock is released: a test that sees it free may look at the record.
        self.served.append((admitted.metadata.name, current.metadata.name, devices))
        await self._try_success(current)

    async def _current_pod(self) -> Pod:
        """Find the pod that the node is locked for; without a lock, any that may be meant.

        Whoever has the lock is taken unseen: its node, phase and annotations are not looked at.
        """
        node = await self.client.get(NODES, self.node)
        value = node.metadata.annotations.get(names.NODE_LOCK)
        try:
            lock = locks.decode(value) if value is not None else None
            if lock is not None and not lock.is_anonymous:
                return await self.client.get(PODS, lock.name, lock.namespace)
        except (HamiFormatError, NotFoundError) as error:
            raise AllocateError(str(error)) from error
        for pod in await self.client.list(PODS, field_selector=f"spec.nodeName={self.node}"):
            annotations = pod.metadata.annotations
            if (
                pod.status.phase == "Pending"
                and annotations.get(names.BIND_PHASE) in ("allocating", "success")
                and names.BIND_TIME in annotations
                and annotations.get(names.ASSIGNED_NODE) == self.node
            ):
                return pod
        raise AllocateError(f"no binding pod found on node {self.node}")

    async def _try_success(self, pod: Pod) -> None:
        """Say success once no vendor's word is left; of a pod that is gone the lock stays."""
        try:
            found = await self.client.get(PODS, pod.metadata.name, pod.metadata.namespace)
        except NotFoundError:
            return
        left = found.metadata.annotations.get(NVIDIA.to_allocate_key, "")
        if not any(word in left for word in BY_WORD):
            await self._end(pod, names.BindPhase.SUCCESS)

    async def _end(self, pod: Pod, phase: names.BindPhase) -> None:
        """Write the last phase, and release the node even if the pod is gone meanwhile."""
        with suppress(NotFoundError):
            await self._annotate(pod, {names.BIND_PHASE: phase.value})
        await self._release(pod)

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


def _erase_first(annotations: Mapping[str, str], count: int) -> tuple[str, str]:
    """Return the devices of the first slot that has some, and the text without them.

    A text of N slots is read as N + 1, and written back with one more. Only a device without a
    comma is no device; one without a UUID is.
    """
    text = annotations.get(NVIDIA.to_allocate_key)
    if text is None:
        raise AllocateError("device request not found")
    slots = [[part for part in slot.split(":") if "," in part] for slot in text.split(";")]
    if any(len(part.split(",")) < _FIELDS for slot in slots for part in slot):
        raise AllocateError("pod annotation format error, missing fields")
    index = next((at for at, slot in enumerate(slots) if slot), None)
    if index is None:
        raise AllocateError("no pending device allocation found")
    devices, slots[index] = slots[index], []
    if len(devices) != count:
        raise AllocateError("device number not matched")
    return _encoded([devices]), _encoded(slots)


def _encoded(slots: list[list[str]]) -> str:
    return "".join("".join(f"{part}:" for part in slot) + ";" for slot in slots)
