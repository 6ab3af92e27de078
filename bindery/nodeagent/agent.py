"""Runs all hollow nodes of one process until a stop signal.

The entry point of the package: `bindery.cli.processes.nodeagent` connects the client and calls
`run`. `nodes` keeps the Node objects, `pods` runs the pods, `kubelets` decides about pods, and
`topologies` reports the free resources of NUMA zones. A kill at any moment loses nothing: all state
is in the API server or in checkpoints.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from bindery.kube.client import Client
from bindery.kube.events.recorder import EventRecorder
from bindery.kube.objects.watched import Node
from bindery.nodeagent.kubelets import Kubelets
from bindery.nodeagent.nodes import NodeKeeper
from bindery.nodeagent.pods import PodKeeper
from bindery.nodeagent.shapes import ManagedNode
from bindery.nodeagent.topologies import DELAY_S, TopologyKeeper
from bindery.observability.health import HealthServer
from bindery.observability.listening import NOWHERE, Listening

COMPONENT: Final = "bindery-nodeagent"
_REPORT_S: Final = 5.0


class HollowAgent:
    """Keeps `nodes`, with their pods and NUMA zones.

    `checkpoints`: None keeps them in memory. `topology_delay_s`: how long changes of zones are
    collected before they are reported.
    """

    def __init__(
        self,
        client: Client,
        nodes: tuple[ManagedNode, ...],
        *,
        checkpoints: Path | None = None,
        topology_delay_s: float = DELAY_S,
    ) -> None:
        clock, random = client.environment.now_s, client.environment.random
        self._events = EventRecorder(client, COMPONENT)
        self.kubelets = Kubelets(
            node_object=self._node_object,
            changed=self._report_zones,
            complain=self._complain,
            clock=clock,
            checkpoints=checkpoints,
        )
        self.nodes = NodeKeeper(
            client,
            nodes,
            events=self._events,
            prepare=self.kubelets.prepare,
            on_registered=self._take_up_pods,
        )
        self.pods = PodKeeper(
            client,
            self._events,
            registered=self.nodes.registered,
            kubelets=self.kubelets,
            clock=clock,
            random=random,
        )
        self.topologies = TopologyKeeper(
            client,
            kubelet=self.kubelets.kubelet,
            node_uid=self.nodes.uid,
            delay_s=topology_delay_s,
            random=random,
        )

    async def run(
        self,
        stop: asyncio.Event,
        *,
        listening: Listening = NOWHERE,
        remove_on_exit: bool = False,
    ) -> None:
        """Keep the nodes until `stop` is set; then delete them if `remove_on_exit`."""
        keepers = (self.nodes, self.pods, self.topologies)
        loops = (self._events.run, *(keeper.run for keeper in keepers), self._report)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(HealthServer(listening, self._checks()))
            group = await stack.enter_async_context(asyncio.TaskGroup())
            tasks = [group.create_task(loop()) for loop in loops]
            await stop.wait()
            for task in tasks:
                task.cancel()
        if remove_on_exit:
            await self.nodes.remove_all()

    # The keepers refer to each other through these variables, because each is created after
    # another.

    def _node_object(self, node: ManagedNode) -> Node:
        return self.nodes.seen(node)

    def _report_zones(self, node: ManagedNode) -> None:
        self.topologies.changed(node)

    def _complain(self, node: ManagedNode, problem: str) -> None:
        self.nodes.complain(node, problem)

    def _take_up_pods(self, node: ManagedNode) -> None:
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
            self.topologies.report()
            await asyncio.sleep(_REPORT_S)
