"""The devices of a node from NVML's answers and from a file, and their holders by the kubelet."""

import ctypes
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bindery.nodeagent.devices import nvml, nvmluse
from bindery.nodeagent.devices.filesource import FileSource
from bindery.nodeagent.devices.inventory import (
    MISSING,
    DevicesUnreadableError,
    Distance,
    NodeGpu,
    UseReading,
    with_missing,
)
from bindery.nodeagent.devices.nvml import NvmlSource
from bindery.nodeagent.devices.podresources import DeviceHolders, uuid_of
from bindery.nodeagent.sockets import services
from bindery.nodeagent.sockets.definitions import podresources_pb2 as api

ANSWERS = Path(__file__).parent / "nvml" / "dgx-a100.json"
"""Transcribed, not recorded on hardware; the file names its sources."""
UUIDS = [f"GPU-{n:08x}-5a1c-4d1e-9b7f-0242ac1100{n:02x}" for n in range(3)]


class NVMLError(Exception):
    """An error of NVML."""


class Placement(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint), ("size", ctypes.c_uint))


class TranscribedNvml:
    """Answers as the module `pynvml` does, from a file."""

    NVMLError = NVMLError
    NVML_NVLINK_MAX_LINKS = 36
    NVML_GPU_INSTANCE_PROFILE_COUNT = 18
    c_nvmlGpuInstancePlacement_t = Placement  # noqa: N815  NVML's name

    def __init__(self, path: Path = ANSWERS) -> None:
        self._answers = json.loads(path.read_text())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: object) -> Any:
            answer = self._answers[name][",".join(map(str, arguments))]
            if isinstance(answer, str) and answer.startswith("!"):
                raise NVMLError(answer)
            return _structure(answer)

        return call

    def nvmlDeviceGetGpuInstancePossiblePlacements(  # noqa: N802  NVML's name
        self, handle: str, profile: int, found: Any, count: Any
    ) -> None:
        places = self._answers["placements"][f"{handle},{profile}"]
        count._obj.value = len(places)
        for index, (start, size) in enumerate(places if found is not None else ()):
            found[index].start, found[index].size = start, size


def _structure(answer: Any) -> Any:
    if isinstance(answer, dict):
        return SimpleNamespace(**{key: _structure(value) for key, value in answer.items()})
    return answer


@pytest.fixture
def pci_devices(tmp_path: Path) -> Path:
    for address, zone in (("0000:07:00.0", "3"), ("0000:0f:00.0", "3"), ("0000:47:00.0", "-1")):
        (tmp_path / address).mkdir()
        (tmp_path / address / "numa_node").write_text(f"{zone}\n")
    return tmp_path


def test_nvmls_answers_become_devices_with_memory_zone_and_address(pci_devices: Path) -> None:
    found = nvml.read(TranscribedNvml(), pci_devices).gpus

    assert [gpu.uuid for gpu in found] == UUIDS
    assert [gpu.index for gpu in found] == [0, 1, 2]
    assert {(gpu.model, gpu.memory_mib) for gpu in found} == {("NVIDIA A100-SXM4-40GB", 40960)}
    assert [gpu.numa_node for gpu in found] == [3, 3, -1]
    assert [gpu.pci_address for gpu in found] == ["0000:07:00.0", "0000:0f:00.0", "0000:47:00.0"]


def test_links_through_switches_count_as_links_to_every_other_gpu(pci_devices: Path) -> None:
    first, second, third = nvml.read(TranscribedNvml(), pci_devices).gpus

    links = {link.uuid: link for link in first.links}
    assert links[second.uuid].nvlinks == 12
    assert links[second.uuid].distance is Distance.MULTIPLE
    assert links[third.uuid].nvlinks == 0
    assert links[third.uuid].distance is Distance.SYSTEM


def test_lost_rows_and_uncorrected_errors_make_a_gpu_unhealthy(pci_devices: Path) -> None:
    problems = [gpu.problem for gpu in nvml.read(TranscribedNvml(), pci_devices).gpus]

    assert problems == [
        "",
        "a row of its memory could not be remapped",
        "3 uncorrected errors of its memory since the last reset",
    ]


def test_mig_instances_and_profiles_are_read_of_a_gpu_in_mig_mode(pci_devices: Path) -> None:
    first, _, third = nvml.read(TranscribedNvml(), pci_devices).gpus

    assert not first.is_mig
    assert not first.mig_kinds
    assert [(each.profile, each.memory_mib, each.placement.start) for each in third.mig_slices] == [
        ("3g.20gb", 19968, 0),
        ("1g.5gb", 4864, 4),
    ]
    kinds = {kind.name: kind for kind in third.mig_kinds}
    assert set(kinds) == {"1g.5gb", "3g.20gb"}
    assert [(each.start, each.size) for each in kinds["3g.20gb"].placements] == [(0, 4), (4, 4)]


def test_a_gpu_that_is_no_longer_reported_stays_as_unhealthy() -> None:
    known = (NodeGpu(uuid="GPU-a", index=0), NodeGpu(uuid="GPU-b", index=1))

    found = with_missing(known, known[1:])

    assert [(gpu.uuid, gpu.problem) for gpu in found] == [("GPU-a", MISSING), ("GPU-b", "")]
    assert with_missing(found, known) == known


async def test_nvml_is_read_in_a_process_of_its_own_whose_failure_is_reported() -> None:
    program = "import sys; sys.exit('NVML: Driver Not Loaded')"

    with pytest.raises(DevicesUnreadableError, match="Driver Not Loaded"):
        await NvmlSource((sys.executable, "-c", program)).read()
    with pytest.raises(DevicesUnreadableError, match="NVML's reader"):
        await NvmlSource((sys.executable, "-c", "print('no JSON')")).read()


async def test_what_the_process_prints_is_read_back(pci_devices: Path) -> None:
    found = nvml.read(TranscribedNvml(), pci_devices)
    text = found.model_dump_json(by_alias=True)

    program = f"print({text!r})"
    assert await NvmlSource((sys.executable, "-c", program)).read() == found.gpus


def test_the_use_of_a_gpu_in_mig_mode_is_unknown() -> None:
    assert nvmluse.read(TranscribedNvml()) == {UUIDS[0]: 97, UUIDS[1]: 0, UUIDS[2]: None}


async def test_use_is_read_in_a_process_of_its_own_too() -> None:
    def source(program: str) -> NvmlSource:
        return NvmlSource(use_command=(sys.executable, "-c", program))

    assert await source("""print('{"GPU-a": 3, "GPU-b": null}')""").use() == UseReading(
        {"GPU-a": 3, "GPU-b": None}
    )
    with pytest.raises(DevicesUnreadableError, match="Driver Not Loaded"):
        await source("import sys; sys.exit('NVML: Driver Not Loaded')").use()
    with pytest.raises(DevicesUnreadableError, match="NVML's reader"):
        await source("print('[1]')").use()


async def test_the_use_in_a_file_is_no_part_of_the_devices(tmp_path: Path) -> None:
    file = tmp_path / "gpus.yaml"
    file.write_text("gpus: [{uuid: A, utilizationPercent: 7}, {uuid: B}]")

    assert await FileSource(file).use() == UseReading({"A": 7, "B": None})
    assert {gpu.utilization_percent for gpu in await FileSource(file).read()} == {None}


async def test_a_file_describes_devices_of_any_make(tmp_path: Path) -> None:
    file = tmp_path / "gpus.yaml"
    file.write_text("gpus: [{uuid: B, index: 1}, {uuid: A, memoryMib: 100, model: Other 1}]")

    found = await FileSource(file).read()

    assert [(gpu.uuid, gpu.memory_mib) for gpu in found] == [("A", 100), ("B", 0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus: [{uuid: A}, {uuid: A}]", "listed twice"),
        ("gpus: [{uuid: 'A,B'}]", "uuid"),
        ("gpus: [{uuid: A, memory: 1}]", "memory"),
        ("[", "gpus.yaml"),
    ],
)
async def test_a_file_that_cannot_be_used_is_reported(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "gpus.yaml"
    file.write_text(text)

    with pytest.raises(DevicesUnreadableError, match=message):
        await FileSource(file).read()
    with pytest.raises(DevicesUnreadableError):
        await FileSource(tmp_path / "absent.yaml").read()


@pytest.fixture
async def holders(tmp_path: Path) -> AsyncIterator[DeviceHolders]:
    """A kubelet that reports a container with a share, and one with another device."""
    share = f"{UUIDS[0]}-3"

    async def listed(_request: Any) -> api.ListPodResourcesResponse:
        held = api.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=[share])
        containers = [api.ContainerResources(name="c", devices=[held])]
        other = api.ContainerDevices(resource_name="example.com/other", device_ids=["x"])
        containers.append(api.ContainerResources(name="sidecar", devices=[other]))
        pod = api.PodResources(namespace="n", name="p", containers=containers)
        return api.ListPodResourcesResponse(pod_resources=[pod])

    socket = tmp_path / "kubelet.sock"
    service = api.DESCRIPTOR.services_by_name["PodResourcesLister"]
    server = services.serve(socket, (service, {"List": listed}))
    await server.start()
    yield DeviceHolders(socket, "nvidia.com/gpu")
    await server.stop(None)


async def test_the_kubelet_knows_the_holders_of_one_resource(holders: DeviceHolders) -> None:
    assert await holders.holders() == {("n", "p"): {"c": (f"{UUIDS[0]}-3",)}}


async def test_a_kubelet_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    source = DeviceHolders(tmp_path / "absent.sock", "nvidia.com/gpu")

    with pytest.raises(DevicesUnreadableError, match="PodResources"):
        await source.holders()


def test_an_identifier_means_a_known_device_or_a_share_of_one() -> None:
    assert uuid_of("GPU-1-0", {"GPU-1"}) == "GPU-1"
    assert uuid_of("GPU-1", {"GPU-1"}) == "GPU-1"
    assert uuid_of("GPU-1-0", {"GPU-1-0", "GPU-1"}) == "GPU-1-0"
    assert uuid_of("other", {"GPU-1"}) == "other"
