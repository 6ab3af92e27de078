"""Writes which GPUs of the node a pod has got: the annotation `gpu-indexes`.

A pod with whole GPUs, or a reservation pod of shared GPUs, gets its devices from a device plugin
that writes nothing. The kubelet reports them (PodResources), the devices' source has their indexes.
Without the annotation the scheduler knows only their number.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import structlog

from bindery.api.names import GPU_INDEXES_ANNOTATION
from bindery.kube.client import Client
from bindery.kube.errors import ConflictError, KubeError, NotFoundError
from bindery.kube.http.outages import log_failure
from bindery.nodeagent.devices.inventory import DevicesUnreadableError, NodeGpu, PodKey
from bindery.nodeagent.devices.podresources import DeviceHolders, uuid_of
from bindery.nodeagent.devices.reporter import DeviceReporter
from bindery.nodeagent.shares.pods import SHARING_PODS, SharingPod
from bindery.nodeagent.shares.view import NodeView

_log: Final = structlog.get_logger(__name__)
_EVERY_S: Final = 2.0


class IndexWriter:
    """Writes the annotation on the pods of one node."""

    def __init__(
        self,
        client: Client,
        view: NodeView,
        reporter: DeviceReporter,
        kubelet: DeviceHolders,
    ) -> None:
        self._client, self._view = client, view
        self._reporter, self._kubelet = reporter, kubelet

    async def run(self) -> None:
        """Write at intervals, until cancelled. The kubelet is asked only if a pod lacks it."""
        await self._view.wait_filled()
        while True:
            if any(lacking(self._view.pods.values())):
                try:
                    await self._write()
                except DevicesUnreadableError as error:
                    _log.debug("the kubelet does not report its pods", error=str(error))
                except KubeError as error:
                    log_failure(_log, "the GPUs of pods are not written", error)
            await asyncio.sleep(_EVERY_S)

    async def _write(self) -> None:
        held = await self._kubelet.holders()
        for pod, text in found(self._view.pods.values(), held, self._reporter.gpus):
            meta = pod.metadata
            annotations = {GPU_INDEXES_ANNOTATION: text}
            patch = {"metadata": {"uid": meta.uid, "annotations": annotations}}
            with suppress(NotFoundError, ConflictError):
                await self._client.patch(SHARING_PODS, meta.name, patch, namespace=meta.namespace)


def lacking(pods: Iterable[SharingPod]) -> list[SharingPod]:
    """Return the pods with GPUs that have none of HAMi's phases, and no annotation."""
    return [
        pod
        for pod in pods
        if any(pod.counts)
        and not pod.has_ended
        and not pod.bind_phase
        and GPU_INDEXES_ANNOTATION not in pod.metadata.annotations
    ]


def found(
    pods: Iterable[SharingPod],
    held: Mapping[PodKey, Mapping[str, Sequence[str]]],
    gpus: Sequence[NodeGpu],
) -> list[tuple[SharingPod, str]]:
    """Return the pods that lack the annotation and whose GPUs are known, with its text."""
    indexes = {gpu.uuid: gpu.index for gpu in gpus}
    texts = []
    for pod in lacking(pods):
        identifiers = [each for some in held.get(pod.key, {}).values() for each in some]
        uuids = {uuid_of(each, indexes) for each in identifiers}
        if uuids and uuids <= indexes.keys() and len(identifiers) >= max(pod.counts):
            texts.append((pod, ",".join(map(str, sorted(indexes[uuid] for uuid in uuids)))))
    return texts
