"""The files and the socket of a node, as the agent reads them."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bindery.nodeagent.beside.podresources import PodResources
from bindery.nodeagent.beside.sources import NodeSources, SourceError
from bindery.nodeagent.sockets import services
from bindery.nodeagent.sockets.definitions import podresources_pb2 as api
from bindery.nodeagent.sockets.podresources import SOCKET
from bindery.nodecore import sysfs
from bindery.nodecore.checkpoints import cpu
from bindery.nodecore.devices.state import Device
from tests.nodeagent.beside.besideworld import hardware

LISTER = api.DESCRIPTOR.services_by_name["PodResourcesLister"]


@pytest.fixture
def sources() -> Iterator[NodeSources]:
    """In a directory with a short name, as paths of sockets have at most 108 bytes."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for path, text in hardware().items():
            file = root / "system" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (root / "kubelet/pod-resources").mkdir(parents=True)
        yield NodeSources(root / "kubelet", root / "config.yaml", root / "system")


async def test_the_socket_is_asked_for_devices_and_pods(sources: NodeSources) -> None:
    async def allocatable(_request: object) -> api.AllocatableResourcesResponse:
        devices = api.ContainerDevices(resource_name="example.com/gpu", device_ids=["a"])
        return api.AllocatableResourcesResponse(devices=[devices])

    async def listed(_request: object) -> api.ListPodResourcesResponse:
        return api.ListPodResourcesResponse()

    methods: services.Methods = {"GetAllocatableResources": allocatable, "List": listed}
    assert sources.started() is None
    server = services.serve(sources.directory / SOCKET, (LISTER, methods))
    await server.start()
    try:
        assert sources.started() is not None
        assert await sources.resources() == PodResources({"example.com/gpu": (Device("a"),)})
    finally:
        await server.stop(None)


async def test_a_missing_socket_is_an_error_with_its_path(sources: NodeSources) -> None:
    with pytest.raises(SourceError, match=r"pod-resources/kubelet\.sock"):
        await sources.resources()


def test_the_hardware_is_read_as_from_the_files_of_linux(sources: NodeSources) -> None:
    assert sysfs.machine_of(sources.hardware()) == sysfs.machine_of(hardware())


def test_a_file_that_is_replaced_has_another_mark(sources: NodeSources) -> None:
    """The kubelet writes another file and renames it."""
    target = sources.directory / cpu.FILE
    target.write_bytes(b"old")
    before = sources.marks()
    other = target.with_suffix(".new")
    other.write_bytes(b"new")
    other.replace(target)

    assert sources.marks() != before
    assert sources.files() == {cpu.FILE: b"new"}


def test_a_missing_configuration_is_none_and_other_files_are_left_out(
    sources: NodeSources,
) -> None:
    assert sources.configuration() is None
    assert sources.files() == {}
    assert sources.marks() == {}
