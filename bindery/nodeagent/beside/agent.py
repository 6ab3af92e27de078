"""Runs the agent beside a kubelet until it is stopped: exporter, GPUs, probes and metrics.

`bindery.cli.processes.beside` connects the client and calls `run`. All state is the kubelet's and
the API server's, so a kill at any moment loses nothing.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from bindery.kube.client import Client
from bindery.kube.events.recorder import EventRecorder
from bindery.nodeagent.beside.exporter import Exporter
from bindery.nodeagent.beside.gpuparts import GpuOptions, GpuParts
from bindery.nodeagent.beside.sources import Sources
from bindery.nodeagent.pod_objects import AgentPod
from bindery.nodeagent.shares.view import node_pods
from bindery.observability.health import HealthServer
from bindery.observability.listening import NOWHERE, Listening

COMPONENT: Final = "bindery-beside"


class BesideAgent:
    """Reports about the node called `name`, whose kubelet is read by `sources`.

    `gpus`: None if its GPUs are left alone.
    """

    def __init__(
        self, client: Client, name: str, sources: Sources, gpus: GpuOptions | None = None
    ) -> None:
        self._events = EventRecorder(client, COMPONENT)
        self.exporter = Exporter(client, name, sources, self._present, self._events)
        self._gpus: GpuParts | None = None
        if gpus is None:
            self._pods = node_pods(client, name, self.exporter.touch)
        else:
            # Their mirror has the node too, which the account may watch only for them.
            self._gpus = GpuParts(client, name, gpus, self.exporter.touch)
            self._pods = self._gpus.view.pod_mirror

    async def run(self, *, listening: Listening = NOWHERE) -> None:
        """Report until cancelled."""
        checks = {"pods": self._pods.healthy, "report": lambda: self.exporter.is_ready}
        if self._gpus is not None:
            checks |= self._gpus.checks()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(HealthServer(listening, checks))
            group = await stack.enter_async_context(asyncio.TaskGroup())
            group.create_task(self._events.run())
            group.create_task(self._pods.run() if self._gpus is None else self._gpus.run())
            await self._pods.synced.wait()
            group.create_task(self.exporter.run())

    def _present(self) -> Sequence[AgentPod]:
        return tuple(self._pods.objects.values())
