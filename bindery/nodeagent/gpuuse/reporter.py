"""Reads the use of the GPUs at intervals, and writes into pods since when theirs are unused.

`tracker` decides. It writes only at changes: the time stays while the GPUs stay unused.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from bindery.api import times
from bindery.api.names import GPUS_IDLE_SINCE_ANNOTATION
from bindery.kube.client import Client
from bindery.kube.errors import ConflictError, KubeError, NotFoundError
from bindery.kube.http.outages import log_failure
from bindery.nodeagent.devices.inventory import DevicesUnreadableError, UseReading, UseSource
from bindery.nodeagent.devices.reporter import DeviceReporter
from bindery.nodeagent.gpuuse import holdings
from bindery.nodeagent.gpuuse.holdings import HeldGpus
from bindery.nodeagent.gpuuse.tracker import UseRules, UseTracker
from bindery.nodeagent.shares.pods import SHARING_PODS, SharingPod
from bindery.nodeagent.shares.view import NodeView
from bindery.nodeagent.sockets import podresources
from bindery.nodeagent.sockets.definitions import podresources_pb2 as api
from bindery.nodeagent.sockets.services import CallError

_log: Final = structlog.get_logger(__name__)


@dataclass(frozen=True)
class UseOptions:
    """How use is read and judged; `every_s`: seconds between two readings."""

    rules: UseRules = field(default_factory=UseRules)
    every_s: float = 10.0


class UseReporter:
    """Reports the use of the GPUs of one node, as `source` reads it.

    `socket`: the kubelet's, of PodResources.
    """

    def __init__(
        self,
        client: Client,
        view: NodeView,
        devices: DeviceReporter,
        source: UseSource,
        socket: Path,
        options: UseOptions,
    ) -> None:
        self._client, self._view = client, view
        self._devices, self._source = devices, source
        self._socket, self._options = socket, options
        self._tracker = UseTracker(options.rules)
        self._read_s = client.environment.now_s()
        self._listed = api.ListPodResourcesResponse()
        self._reading = UseReading({})
        self._problem = ""

    async def run(self) -> None:
        """Read and write until cancelled."""
        await self._view.wait_filled()
        while True:
            await self.look()
            await asyncio.sleep(self._options.every_s)

    async def look(self) -> None:
        """Read once, and write what has changed."""
        now_s = self._client.environment.now_s()
        try:
            self._reading = await self._source.use()
            self._tracker.observe(now_s, self._reading.percents)
            self._listed = await podresources.listed(self._socket)
        except (DevicesUnreadableError, CallError) as error:
            self._note(str(error))
            # A time that nothing confirms any more would end a gang that works.
            if now_s - self._read_s < self._options.rules.report_after_s:
                return
            self._tracker.observe(now_s, {})
        else:
            self._note("")
            self._read_s = now_s
        pods = self._view.pods.values()
        held = HeldGpus(self._devices.gpus, self._listed, self._reading.holders)
        found = holdings.users(pods, self._view.name, held)
        by_uid = {user.uid: pod for pod, user in found}
        for uid, since_s in self._tracker.changes(now_s, (user for _, user in found)).items():
            await self._write(by_uid[uid], since_s)

    async def _write(self, pod: SharingPod, since_s: float | None) -> None:
        meta = pod.metadata
        text = None if since_s is None else times.timestamp(since_s)
        annotations = {GPUS_IDLE_SINCE_ANNOTATION: text}
        patch = {"metadata": {"uid": meta.uid, "annotations": annotations}}
        try:
            with suppress(NotFoundError, ConflictError):
                await self._client.patch(SHARING_PODS, meta.name, patch, namespace=meta.namespace)
                _log.info("the use of GPUs has changed", pod="/".join(pod.key), idle_since=text)
        except KubeError as error:
            log_failure(_log, "the use of GPUs is not written", error, pod="/".join(pod.key))

    def _note(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.warning("the use of GPUs is not read", error=problem)
        self._problem = problem
