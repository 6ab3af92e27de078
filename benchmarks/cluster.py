"""The cluster that the races are run on: our own control plane, with nodes that nobody runs.

Opened by `races`. kube-controller-manager has a grace period of a day, because no agent renews the
nodes' Leases and it would declare them dead in the middle; all else is as `devcluster`
starts it. The one invariant: every race begins without pods.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.usage import Writes
from benchmarks.workload import NAMESPACE, Wire, Workload, namespaces, nodes
from bindery.kube.client import Client
from bindery.kube.objects.resources import NODES, POD_GROUPS, PODS, Resource
from devcluster import find
from devcluster.build import Report
from devcluster.install import Installation, install
from devcluster.local import LocalControlPlane
from devcluster.processes import Process

__all__ = ["MOST_NAMESPACES", "NAMESPACE", "SETTLE_S", "Cluster", "open_cluster"]

MOST_NAMESPACES: Final = 10
"""How many namespaces a workload may use."""
SETTLE_S: Final = 3.0
"""Lets caches and collectors of the control plane finish with what was created or removed."""
_NODE_GRACE_S: Final = 24 * 3600
_CREATES_AT_ONCE: Final = 32
_CALL_S: Final = 300.0
_CLEAR_S: Final = 180.0
_UNTAINT_S: Final = 120.0
_CLEARED: Final = (
    # Nothing that a later one leaves behind must be made again by an earlier one.
    "/apis/scheduling.bindery.dev/v1alpha1/namespaces/{}/bindrequests",
    "/api/v1/namespaces/{}/pods",
    "/apis/scheduling.bindery.dev/v1alpha1/namespaces/{}/podgroups",
    "/apis/events.k8s.io/v1/namespaces/{}/events",
)


@dataclass(frozen=True)
class Cluster:
    """A control plane with the chart's resources and empty nodes."""

    plane: LocalControlPlane
    installation: Installation
    client: Client
    settle_s: float = SETTLE_S
    """How long a lap waits before and after its measurement."""

    async def settle(self) -> None:
        """Wait until the control plane has finished with what was created or removed."""
        await asyncio.sleep(self.settle_s)

    async def fill(self, workload: Workload) -> None:
        """Create the PodGroups and pods."""
        await self.create_all(POD_GROUPS, workload.pod_groups())
        await self.create_all(PODS, workload.pod_objects())

    async def clear(
        self,
        further: Sequence[str] = (),
        within: Sequence[str] = (NAMESPACE,),
        first: Sequence[str] = (),
    ) -> None:
        """Remove what a race left, without grace, and wait until it is gone.

        Args:
            further: paths of collections to clear after the others.
            within: the namespaces that the race used.
            first: paths of collections to clear before the others.

        Raises:
            TimeoutError: it does not go.
        """
        async with asyncio.timeout(_CLEAR_S):
            for collection in first:
                await self._clear(collection)
            for collection in _CLEARED:
                for namespace in within:
                    await self._clear(collection.format(namespace))
            for collection in further:
                await self._clear(collection)

    async def create_nodes(self, count: int) -> None:
        """Create the nodes and wait until kube-controller-manager has taken their taints off."""
        await self.create_all(NODES, nodes(count), "")
        async with asyncio.timeout(_UNTAINT_S):
            while await self._has_taints():  # noqa: ASYNC110  nobody tells us
                await asyncio.sleep(0.5)

    async def writes(self) -> Writes:
        """Return the requests that the API server has answered so far, by its own count."""
        text = await self._kubectl("get", "/metrics")
        return Writes.of(text)

    def processes(self) -> dict[str, Process]:
        """Return the processes of the control plane, by name."""
        return {process.name: process for process in self.plane.processes}

    async def _has_taints(self) -> bool:
        return any(node.spec.taints for node in await self.client.list(NODES))

    async def create_all(
        self,
        resource: Resource[Any],
        objects: Iterable[Wire],
        namespace: str = "",
        *,
        at_once: int = _CREATES_AT_ONCE,
    ) -> None:
        """Create `objects`, many at once; `namespace`: of those that name none."""
        remaining = iter(objects)

        async def create() -> None:
            for item in remaining:
                where = item["metadata"].get("namespace", namespace)
                await self.client.create(resource, item, where)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(create())

    async def _clear(self, collection: str) -> None:
        """Delete a collection; the server may end a large deletion early, so look again."""
        path = collection if "?" in collection else f"{collection}?"
        while '"items":[]' not in await self._kubectl("get", f"{path}&limit=1"):
            await self._kubectl("delete", f"{path}&gracePeriodSeconds=0")

    async def _kubectl(self, verb: str, path: str) -> str:
        return await asyncio.to_thread(
            self.plane.kubectl, verb, f"--raw={path}", timeout_s=_CLEAR_S
        )


@asynccontextmanager
async def open_cluster(
    state_dir: Path, node_count: int, report: Report, settle_s: float = SETTLE_S
) -> AsyncIterator[Cluster]:
    """Bring the control plane up with `node_count` nodes, and take it down at the end."""
    plane = find.local(find.Options(state_dir=state_dir, node_grace_s=_NODE_GRACE_S), report)
    with plane:
        report("applying the chart's resources")
        installation = install(plane)
        for namespace in namespaces(MOST_NAMESPACES):
            plane.kubectl("create", "namespace", namespace)
        for namespace in namespaces(MOST_NAMESPACES):
            account = ("serviceaccount/default", f"--namespace={namespace}")
            plane.kubectl("wait", "--for=create", *account, "--timeout=30s")
        async with Client.connect(
            plane.admin_kubeconfig, user_agent="bench", request_timeout_s=_CALL_S
        ) as client:
            cluster = Cluster(plane, installation, client, settle_s)
            report(f"creating {node_count} nodes")
            await cluster.create_nodes(node_count)
            yield cluster
