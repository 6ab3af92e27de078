"""A node that speaks HAMi, pods and BindRequests on the real API server, for the binder's tests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bindery.api.configuration import BinderConfiguration, LeaderElection, PluginConfiguration
from bindery.api.hami import names, nodedevices
from bindery.api.hami.assignment import Assignment
from bindery.api.hami.nodedevices import NodeDevice
from bindery.api.hami.poddevices import ContainerDevice
from bindery.api.hami.vendortable import NVIDIA
from bindery.kube.client import Client
from bindery.kube.objects.bindrequests import BindRequest
from bindery.kube.objects.resources import BIND_REQUESTS, NODES, PODS, Resource
from bindery.kube.objects.watched import Node, Pod
from fakes.hami import HamiDevicePlugin

DEADLINE_S = 240.0
_GPU = NVIDIA.count_resource


def configuration(**arguments: float) -> BinderConfiguration:
    """Return a binder's configuration with the plugin alone."""
    return BinderConfiguration(
        plugins=(PluginConfiguration(name="hami", arguments=arguments),),
        leader_election=LeaderElection(enabled=False),
        max_backoff_seconds=1.0,
    )


def gpu(uuid: str = "GPU-0", memory_mib: int = 1000, cores: int = 10) -> ContainerDevice:
    return ContainerDevice(uuid, "NVIDIA", memory_mib, cores)


@dataclass
class HamiCluster:
    """One namespace and its nodes; every wait has a deadline."""

    client: Client
    namespace: str
    nodes: list[str] = field(default_factory=list)

    async def add_node(self, number: int = 0, **annotations: str) -> str:
        name = f"{self.namespace}-{number}"
        device = NodeDevice(
            id="GPU-0", count=100, memory_mib=100_000, cores=100, type="NVIDIA-T4", healthy=True
        )
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {
                    NVIDIA.register_key: nodedevices.encode_json([device]),
                    **annotations,
                },
            },
        }
        await self.client.create(NODES, body)
        self.nodes.append(name)
        return name

    async def add_pod(
        self, name: str, slots: Sequence[int] = (1,), /, **annotations: str
    ) -> dict[str, Any]:
        """Create a pod with one container a slot, each with so many GPUs; return its manifest."""
        containers = [
            {
                "name": f"c{index}",
                "image": "none",
                "resources": {"limits": {NVIDIA.count_resource: str(count)}} if count else {},
            }
            for index, count in enumerate(slots)
        ]
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, "annotations": annotations},
            "spec": {
                "schedulerName": "by-hand",
                "containers": containers,
                "terminationGracePeriodSeconds": 0,
            },
        }
        await self.client.create(PODS, body, self.namespace)
        return body

    async def request(
        self,
        name: str,
        pods: Sequence[str],
        node: str | Sequence[str],
        *,
        priority: int = 0,
        **spec: Any,
    ) -> None:
        """Create the BindRequest that puts `pods` on `node`, with a device for each container."""
        nodes = [node] * len(pods) if isinstance(node, str) else list(node)
        bindings = []
        for pod_name, on in zip(pods, nodes, strict=True):
            pod = await self.pod(pod_name)
            slots = tuple(
                (gpu(),)
                * int(((c.resources and c.resources.limits) or {}).get("nvidia.com/gpu", 0))
                for c in pod.spec.containers
            )
            assignment = Assignment({"NVIDIA": slots}, {"GPU-0": 0})
            bindings.append(
                {
                    "podName": pod_name,
                    "podUID": pod.metadata.uid,
                    "selectedNode": on,
                    "pluginData": {"hami": assignment.to_data()},
                }
            )
        statement = {"id": name, "pods": bindings, "priority": priority}
        body = {
            "apiVersion": "scheduling.bindery.dev/v1alpha1",
            "kind": "BindRequest",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "labels": {"scheduling.bindery.dev/node-pool": self.namespace},
            },
            "spec": {"statements": [statement], **spec},
        }
        await self.client.create(BIND_REQUESTS, body, self.namespace)

    async def pod(self, name: str) -> Pod:
        return await self.client.get(PODS, name, self.namespace)

    async def node(self, name: str) -> Node:
        return await self.client.get(NODES, name)

    async def lock(self, node: str) -> str | None:
        return (await self.node(node)).metadata.annotations.get(names.NODE_LOCK)

    async def set_lock(self, node: str, value: str | None) -> None:
        patch = {"metadata": {"annotations": {names.NODE_LOCK: value}}}
        await self.client.patch(NODES, node, patch)

    async def ended(self, *requests: str) -> list[BindRequest]:
        """Wait until the requests have their outcomes; return them."""

        def is_final(request: BindRequest) -> bool:
            return request.status.phase in ("Succeeded", "Failed")

        return [
            await self.until(BIND_REQUESTS, name, is_final, namespace=self.namespace)
            for name in requests
        ]

    async def until(
        self, resource: Resource[Any], name: str, holds: Callable[[Any], bool], namespace: str = ""
    ) -> Any:
        """Wait until `holds` is true of an object; return it. Fails at the deadline."""
        deadline_s = asyncio.get_running_loop().time() + DEADLINE_S
        while True:
            found = await self.client.get(resource, name, namespace)
            if holds(found):
                return found
            assert asyncio.get_running_loop().time() < deadline_s, f"waited in vain: {found}"
            await asyncio.sleep(0.05)

    async def until_unlocked(self, node: str) -> None:
        await self.until(
            NODES, node, lambda found: names.NODE_LOCK not in found.metadata.annotations
        )

    @asynccontextmanager
    async def device_plugin(
        self, node: str, *, works: bool = True
    ) -> AsyncIterator[HamiDevicePlugin]:
        plugin = HamiDevicePlugin(self.client, node, works=works)
        task = asyncio.create_task(plugin.run())
        try:
            yield plugin
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
