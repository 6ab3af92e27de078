"""Runs all hollow nodes of one process until a stop signal.

The door of the package: `bindery.cli.nodeagent` connects the client and calls `run`; from here
`nodes` keeps the nodes and `pods` their pods. A kill at any moment loses nothing: all there is to
know lies in the API server.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Final

from bindery.kube.client import Client
from bindery.kube.events import EventRecorder
from bindery.nodeagent.nodes import NodeKeeper
from bindery.nodeagent.pods import PodKeeper
from bindery.nodeagent.shapes import HollowNode
from bindery.observability.health import HealthServer
from bindery.observability.listening import NOWHERE, Listening

COMPONENT: Final = "bindery-nodeagent"
_REPORT_S: Final = 5.0


class HollowAgent:
    """The keepers of `nodes` and their pods."""

    def __init__(
        self,
        client: Client,
        nodes: tuple[HollowNode, ...],
        *,
        clock: Callable[[], float] = time.time,
        random: Random | None = None,
    ) -> None:
        random = random or Random()  # noqa: S311 -- jitter, not secrets
        self._events = EventRecorder(client, COMPONENT)
        self.nodes = NodeKeeper(
            client, nodes, clock=clock, random=random, on_registered=self._take_up_pods
        )
        self.pods = PodKeeper(
            client, self._events, registered=self.nodes.registered, clock=clock, random=random
        )

    async def run(
        self,
        stop: asyncio.Event,
        *,
        listening: Listening = NOWHERE,
        remove_on_exit: bool = False,
    ) -> None:
        """Keep the nodes until `stop` is set; then remove them if `remove_on_exit`."""
        loops = (self._events.run, self.nodes.run, self.pods.run, self._report)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(HealthServer(listening, self._checks()))
            group = await stack.enter_async_context(asyncio.TaskGroup())
            tasks = [group.create_task(loop()) for loop in loops]
            await stop.wait()
            for task in tasks:
                task.cancel()
        if remove_on_exit:
            await self.nodes.remove_all()

    def _take_up_pods(self, node: str) -> None:
        self.pods.look_after(node)

    def _checks(self) -> dict[str, Callable[[], bool]]:
        return {
            "nodes": lambda: self.nodes.healthy,
            "registered": self.nodes.settled.is_set,
            "pods": lambda: self.pods.healthy,
        }

    async def _report(self) -> None:
        while True:
            self.nodes.report()
            self.pods.report()
            await asyncio.sleep(_REPORT_S)
