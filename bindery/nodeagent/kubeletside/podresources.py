"""Serves PodResources v1: what the containers of the node hold, from the state of `nodecore`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

import grpc

from bindery.nodeagent.sockets import services
from bindery.nodeagent.sockets.definitions import podresources_pb2 as api
from bindery.nodeagent.sockets.podresources import SOCKET
from bindery.nodeagent.sockets.services import Methods, Refusal
from bindery.nodecore.checkpoints.devices import NO_NUMA_NODE
from bindery.nodecore.claims.facts import ClaimError, ClaimingPod
from bindery.nodecore.claims.manager import ClaimInfo
from bindery.nodecore.container_manager import ContainerManager
from bindery.nodecore.devices.state import Device
from bindery.nodecore.numamemory import Block
from bindery.nodecore.pods import Container, Pod

_LISTER: Final = api.DESCRIPTOR.services_by_name["PodResourcesLister"]
_DIRECTORY_MODE: Final = 0o750


class RunningPods(Protocol):
    """The pods whose resources are shown."""

    def pods(self) -> Iterable[Pod]:
        """Return the pods that are admitted or wait for their plugins, and have not ended."""

    def claiming(self, uid: str) -> ClaimingPod | None:
        """Return what is known of the claims of a pod."""


class PodResourcesServer:
    """The server of a node. `directory`: the kubelet's own."""

    def __init__(self, directory: Path, manager: ContainerManager, pods: RunningPods) -> None:
        self._socket, self._manager, self._pods = directory / SOCKET, manager, pods

    def server(self) -> grpc.aio.Server:
        """Return the server on its socket, for `start` and `stop`."""
        self._socket.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        methods: Methods = {
            "List": self._list,
            "Get": self._get,
            "GetAllocatableResources": self._allocatable,
        }
        return services.serve(self._socket, (_LISTER, methods))

    async def _list(self, _request: api.ListPodResourcesRequest) -> api.ListPodResourcesResponse:
        self._manager.devices.remove_stale_state()
        return api.ListPodResourcesResponse(pod_resources=map(self._of_pod, self._pods.pods()))

    async def _get(self, request: api.GetPodResourcesRequest) -> api.GetPodResourcesResponse:
        name = request.pod_namespace, request.pod_name
        for pod in self._pods.pods():
            if (pod.namespace, pod.name) == name:
                return api.GetPodResourcesResponse(pod_resources=self._of_pod(pod))
        raise Refusal(f"pod {name[1]} in namespace {name[0]} not found")

    async def _allocatable(
        self, _request: api.AllocatableResourcesRequest
    ) -> api.AllocatableResourcesResponse:
        listed = self._manager.devices.allocatable_devices()
        return api.AllocatableResourcesResponse(
            devices=[
                entry
                for resource, devices in listed.items()
                for device in devices
                for entry in _entries(resource, device)
            ],
            cpu_ids=sorted(self._manager.cpu.allocatable_cpus()),
            memory=map(_memory, self._manager.memory.allocatable_memory()),
        )

    def _of_pod(self, pod: Pod) -> api.PodResources:
        shown = [*(one for one in pod.init_containers if one.is_sidecar), *pod.containers]
        return api.PodResources(
            name=pod.name,
            namespace=pod.namespace,
            containers=[self._of_container(pod, one) for one in shown],
        )

    def _of_container(self, pod: Pod, container: Container) -> api.ContainerResources:
        manager = self._manager
        held = manager.devices.devices_of(pod.uid, container.name)
        return api.ContainerResources(
            name=container.name,
            devices=[
                _entry(resource, one, node)
                for resource, devices in held.items()
                for node, ids in devices.by_node.items()
                for one in ids
            ],
            cpu_ids=sorted(manager.cpu.exclusive_cpus(pod.uid, container.name)),
            memory=map(_memory, manager.memory.memory(pod.uid, container.name)),
            dynamic_resources=map(_dynamic, self._claims(pod, container)),
        )

    def _claims(self, pod: Pod, container: Container) -> list[ClaimInfo]:
        claiming = self._pods.claiming(pod.uid)
        if self._manager.claims is None or claiming is None:
            return []
        try:
            return self._manager.claims.of_container(claiming, container.name)
        except ClaimError:
            return []  # not prepared yet


def _entries(resource: str, device: Device) -> Iterator[api.ContainerDevices]:
    for node in device.numa_nodes or (NO_NUMA_NODE,):
        yield _entry(resource, device.id, node)


def _entry(resource: str, device: str, node: int) -> api.ContainerDevices:
    return api.ContainerDevices(
        resource_name=resource,
        device_ids=[device],
        topology=None if node == NO_NUMA_NODE else _nodes([node]),
    )


def _memory(block: Block) -> api.ContainerMemory:
    return api.ContainerMemory(
        memory_type=block.resource, size=block.size, topology=_nodes(block.numa_nodes)
    )


def _nodes(nodes: Iterable[int]) -> api.TopologyInfo:
    return api.TopologyInfo(nodes=[api.NUMANode(ID=node) for node in nodes])


def _dynamic(info: ClaimInfo) -> api.DynamicResource:
    return api.DynamicResource(
        claim_name=info.state.name,
        claim_namespace=info.state.namespace,
        claim_resources=[
            api.ClaimResource(
                cdi_devices=[api.CDIDevice(name=name) for name in one.cdi_ids or ()],
                driver_name=driver,
                pool_name=one.pool,
                device_name=one.device,
                share_id=one.share_id,
            )
            for driver, devices in sorted(info.state.drivers.items())
            for one in devices
        ],
    )
