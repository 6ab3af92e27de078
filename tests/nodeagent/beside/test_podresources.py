"""Devices in the answers of the PodResources socket."""

from bindery.nodeagent.beside import podresources
from bindery.nodeagent.beside.podresources import PodName, PodResources
from bindery.nodeagent.sockets.definitions import podresources_pb2 as api
from bindery.nodecore.devices.state import Device

GPU = "example.com/gpu"


def entry(*ids: str, zones: tuple[int, ...] = (), resource: str = GPU) -> api.ContainerDevices:
    nodes = [api.NUMANode(ID=zone) for zone in zones]
    topology = api.TopologyInfo(nodes=nodes) if zones else None
    return api.ContainerDevices(resource_name=resource, device_ids=ids, topology=topology)


def listed(*containers: api.ContainerResources) -> api.ListPodResourcesResponse:
    pod = api.PodResources(name="p", namespace="ns", containers=containers)
    idle = api.PodResources(name="idle", namespace="ns", containers=[])
    return api.ListPodResourcesResponse(pod_resources=[pod, idle])


def test_a_device_of_two_zones_has_two_entries() -> None:
    devices = [entry("a", zones=(0,)), entry("a", zones=(1,)), entry("b")]
    allocatable = api.AllocatableResourcesResponse(devices=devices)

    found = podresources.read(allocatable, api.ListPodResourcesResponse())

    assert found == PodResources({GPU: (Device("a", (0, 1)), Device("b"))})


def test_the_containers_of_pods_hold_devices() -> None:
    app = api.ContainerResources(name="app", devices=[entry("a", zones=(0,)), entry("b")])
    side = api.ContainerResources(name="side", cpu_ids=[3])
    allocatable = api.AllocatableResourcesResponse(devices=[entry("a", zones=(0,)), entry("b")])

    found = podresources.read(allocatable, listed(app, side))

    assert found.held == {PodName("ns", "p"): {"app": {GPU: frozenset("ab")}}}


def test_a_device_that_is_held_and_sick_is_known_and_not_healthy() -> None:
    """The kubelet lists only healthy devices as allocatable."""
    app = api.ContainerResources(name="app", devices=[entry("sick", zones=(1,))])

    found = podresources.read(api.AllocatableResourcesResponse(), listed(app))

    assert found.devices == {GPU: (Device("sick", (1,), healthy=False),)}
