"""Completes HAMi's handshake for one call of the kubelet.

Called by `plugin`, one call at a time. The steps: read the node's lock, find the waiting container,
check that the devices have room, write on the pod that the container has its devices, release the
lock after the last container, answer. Everything is decided from the API server's and the kubelet's
state, so a process that is killed in between leaves nothing that `settling` does not see.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from bindery.api.hami import names, poddevices
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.lock import NodeLock
from bindery.api.hami.names import BindPhase, Isolation
from bindery.api.hami.vendortable import NVIDIA
from bindery.api.names import GPU_INDEXES_ANNOTATION
from bindery.kube.client import Client
from bindery.kube.errors import ConflictError, NotFoundError
from bindery.nodeagent.devices.hamiregister import Sharing
from bindery.nodeagent.devices.inventory import DevicesUnreadableError, NodeGpu, PodKey
from bindery.nodeagent.devices.podresources import DeviceHolders
from bindery.nodeagent.hamicore import CoreFiles
from bindery.nodeagent.shares import containers, ledger, matching, nodelock
from bindery.nodeagent.shares.containers import Grant, Handing
from bindery.nodeagent.shares.devicelist import DeviceList
from bindery.nodeagent.shares.matching import NoTurnError
from bindery.nodeagent.shares.metrics import ALLOCATIONS
from bindery.nodeagent.shares.nodelock import NodeLockReader
from bindery.nodeagent.shares.pods import (
    SHARING_PODS,
    ContainerTurn,
    SharingPod,
    count_of,
    left_to_allocate,
    next_turn,
    other_vendors_wait,
    slots_of,
)
from bindery.nodeagent.shares.view import NodeView

_log: Final = structlog.get_logger(__name__)

Held = Mapping[PodKey, Mapping[str, object]]
"""Pod -> its containers for which the kubelet has recorded devices."""


class HandshakeError(Exception):
    """The call fails, and with it the pod; the text is for the kubelet's event."""


@dataclass(frozen=True)
class Means:
    """What a handshake works with."""

    client: Client
    view: NodeView
    lock: NodeLockReader
    kubelet: DeviceHolders
    core: CoreFiles
    sharing: Sharing
    device_list: DeviceList


class Handshake:
    """The handshakes of one node."""

    def __init__(self, means: Means) -> None:
        self._means = means

    async def expected(self, count: int) -> ContainerTurn | None:
        """Return the turn that a call for `count` shares will probably belong to."""
        try:
            value = await self._means.lock.value()
            return await self._find(nodelock.read(value), await self._held(), [""] * count)
        except (NoTurnError, HandshakeError):
            return None

    async def allocate(self, uuids: Sequence[str], gpus: Sequence[NodeGpu]) -> Grant:
        """Complete one call; `uuids`: the devices of the shares that the kubelet has chosen.

        Raises:
            HandshakeError: it fails. If the pod is known, its phase is `failed`.
        """
        value, held = await self._means.lock.value(), await self._held()
        try:
            turn = await self._find(nodelock.read(value), held, uuids)
        except NoTurnError as error:
            ALLOCATIONS.labels("unmatched").inc()
            raise HandshakeError(str(error)) from error
        problem = await self._problem(turn, gpus)
        if problem:
            await self.fail(turn.pod, value)
            raise HandshakeError(problem)
        is_last = self._is_last(turn)
        try:
            granted = self._grant(turn)
            await self._write(turn, gpus, is_last=is_last)
        except (NotFoundError, ConflictError) as error:
            await self._means.lock.release_of(turn.pod.key, value)
            raise HandshakeError(f"the pod {'/'.join(turn.pod.key)} is gone") from error
        except OSError as error:
            await self.fail(turn.pod, value)
            raise HandshakeError(f"the files of HAMi-core: {error}") from error
        if is_last:
            await self._means.lock.release_of(turn.pod.key, value)
        ALLOCATIONS.labels("success").inc()
        _log.info(
            "a container has its shares",
            pod="/".join(turn.pod.key),
            container=turn.container.name,
            devices=poddevices.encode((turn.devices,)),
        )
        return granted

    async def fail(self, pod: SharingPod, lock: str | None) -> None:
        """Write that the pod gets nothing, and release its lock, of which `lock` is the value."""
        ALLOCATIONS.labels("failed").inc()
        try:
            await self._annotate(pod, {names.BIND_PHASE: BindPhase.FAILED.value})
        except (NotFoundError, ConflictError):
            _log.debug("a pod that failed is gone", pod="/".join(pod.key))
        await self._means.lock.release_of(pod.key, lock)

    # ---- finding the container ------------------------------------------------------------------

    async def _held(self) -> Held:
        try:
            return await self._means.kubelet.holders()
        except DevicesUnreadableError as error:
            # HAMi's annotation is enough, but for a kubelet that has forgotten a call.
            _log.debug("the kubelet does not report its pods", error=str(error))
            return {}

    async def _find(self, lock: NodeLock | None, held: Held, uuids: Sequence[str]) -> ContainerTurn:
        """Return the turn of a call.

        The holder of the lock is read from the API server. Of the other pods the watch may be
        behind, so before a refusal it catches up.
        """
        pods = dict(self._means.view.pods)
        if lock is not None and not lock.is_anonymous:
            holder = await self._holder(lock)
            if holder is not None:
                pods[holder.key] = holder
        try:
            return matching.choose(self._turns(pods, held), lock, uuids)
        except NoTurnError:
            await self._means.view.catch_up()
            return matching.choose(self._turns(self._means.view.pods, held), lock, uuids)

    async def _holder(self, lock: NodeLock) -> SharingPod | None:
        try:
            return await self._means.client.get(SHARING_PODS, lock.name, lock.namespace)
        except NotFoundError:
            return None

    def _turns(self, pods: Mapping[PodKey, SharingPod], held: Held) -> list[ContainerTurn]:
        found = []
        for pod in pods.values():
            try:
                turn = next_turn(pod, self._means.view.name, held)
            except HamiFormatError as error:
                _log.warning("a pod's devices are unreadable", pod="/".join(pod.key),
                             error=str(error))  # fmt: skip
                continue
            if turn is not None:
                found.append(turn)
        return matching.in_admission(found, held)

    async def _problem(self, turn: ContainerTurn, gpus: Sequence[NodeGpu]) -> str:
        view, sharing = self._means.view, self._means.sharing
        found = ledger.problem(turn, view.name, view.pods.values(), gpus, sharing)
        if found:
            # A pod that has just ended may be missing in the watch.
            await view.catch_up()
            found = ledger.problem(turn, view.name, view.pods.values(), gpus, sharing)
        return found

    # ---- giving it its devices ------------------------------------------------------------------

    def _is_last(self, turn: ContainerTurn) -> bool:
        """Return whether all containers of all vendors' plugins have their devices afterwards."""
        slots = slots_of(turn.pod, self._means.view.name)
        return not any(slots[turn.index + 1 :]) and not other_vendors_wait(turn.pod)

    def _grant(self, turn: ContainerTurn) -> Grant:
        core, uid = self._means.core, turn.pod.metadata.uid
        handing = Handing(
            self._means.device_list, core.found(), self._means.sharing.memory_scaling > 1
        )
        token = self._means.client.environment.token(32)
        core.prepare(handing.core, handing.core.of_container(uid, turn.container.name))
        return containers.grant(turn.devices, turn.container, uid, handing, token)

    async def _write(self, turn: ContainerTurn, gpus: Sequence[NodeGpu], *, is_last: bool) -> None:
        """Write that the container has its devices; after the last one, also the pod's phase.

        HAMi's plugin writes the phase in a second patch; in one, no crash can separate both.
        """
        text = turn.pod.metadata.annotations.get(NVIDIA.to_allocate_key, "")
        slots = slots_of(turn.pod, self._means.view.name)
        later = sum(bool(slot) for slot in slots[turn.index + 1 :])
        written = {}
        if left_to_allocate(turn.pod) > later:
            written[NVIDIA.to_allocate_key] = poddevices.erase_first(text)
        if is_last:
            indexes = {gpu.uuid: gpu.index for gpu in gpus}
            held = {indexes[device.device] for slot in slots for device in slot
                    if device.device in indexes}  # fmt: skip
            written[GPU_INDEXES_ANNOTATION] = ",".join(map(str, sorted(held)))
            written[names.ISOLATION] = self._isolation(turn.pod).value
            written[names.BIND_PHASE] = BindPhase.SUCCESS.value
        await self._annotate(turn.pod, written)

    def _isolation(self, pod: SharingPod) -> Isolation:
        sharers = [each for each in pod.containers if count_of(each)]
        is_off = any(containers.is_control_disabled(each) for each in sharers)
        is_isolated = self._means.core.found().is_installed and not is_off
        return Isolation.HAMI_CORE if is_isolated else Isolation.NONE

    async def _annotate(self, pod: SharingPod, annotations: Mapping[str, str]) -> None:
        meta = pod.metadata
        patch = {"metadata": {"uid": meta.uid, "annotations": dict(annotations)}}
        await self._means.client.patch(SHARING_PODS, meta.name, patch, namespace=meta.namespace)
