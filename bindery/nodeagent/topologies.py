"""Writes the NodeResourceTopologies of nodes when they change.

Started by `agent`, and by `containers.agent`. Changes within `delay_s` become one report with the
last state. If the cluster lacks the definition of the kind, or the account the right to write it,
the write is repeated from time to time.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import structlog

from bindery.kube.client import Client
from bindery.kube.errors import ForbiddenError
from bindery.nodeagent import metrics, reportobject, topologyreport
from bindery.nodeagent.shapes import ManagedNode
from bindery.nodeagent.topologyreport import Layout, Reported
from bindery.nodeagent.work import WorkQueue
from bindery.nodecore.container_manager import NodeConfig

DELAY_S: Final = 0.5
"""Default time in seconds during which changes are collected."""

_WORKERS: Final = 8
_LOOK_AGAIN_S: Final = 30.0
"""Seconds until the next attempt after the API server did not know the kind, or refused it."""

log = structlog.get_logger(__name__)


class TopologyKeeper:
    """Writes the reports of nodes. `kubelet` returns None before its start."""

    def __init__(
        self,
        client: Client,
        *,
        kubelet: Callable[[str], Reported | None],
        node_uid: Callable[[str], str | None],
        delay_s: float,
        random: Random,
    ) -> None:
        self._client, self._kubelet, self._node_uid = client, kubelet, node_uid
        self._delay_s = delay_s
        self._waiting: set[str] = set()
        self._layouts: dict[int, tuple[NodeConfig, Layout]] = {}
        self._problem = ""
        self._queue = WorkQueue("topologies", self._write, workers=_WORKERS, random=random)

    async def run(self) -> None:
        """Write reports; does not return."""
        await self._queue.run()

    def changed(self, node: ManagedNode) -> None:
        """Schedule a report of `node`, unless the node has no NUMA settings."""
        if node.machine.is_reported and node.name not in self._waiting:
            self._waiting.add(node.name)
            self._queue.add_later(node.name, self._delay_s)

    def report(self) -> None:
        """Update the gauges."""
        metrics.WORK_WAITING.labels("topologies").set(len(self._waiting))

    async def _write(self, name: str) -> float | None:
        self._waiting.discard(name)
        kubelet, uid = self._kubelet(name), self._node_uid(name)
        if kubelet is None or uid is None:
            return None
        body = topologyreport.body(kubelet, self._layout(kubelet.machine.config), uid)
        try:
            is_served = await reportobject.store(self._client, name, body)
        except ForbiddenError as error:
            problem = f"the account may not write NodeResourceTopologies: {error}"
        else:
            problem = "" if is_served else "the API server does not serve NodeResourceTopology"
        if problem and problem != self._problem:
            log.warning("zones are not reported", problem=problem)
        self._problem = problem
        return _LOOK_AGAIN_S if problem else None

    def _layout(self, config: NodeConfig) -> Layout:
        """Return the layout of a machine; the nodes of a shape share one."""
        known = self._layouts.get(id(config))
        if known is None:
            known = self._layouts[id(config)] = config, topologyreport.layout_of(config)
        return known[1]
