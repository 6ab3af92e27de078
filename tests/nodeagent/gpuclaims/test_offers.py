"""The GPUs that a node offers."""

import asyncio
from pathlib import Path

import pytest

from bindery.nodeagent.devices.inventory import MigRange, MigSlice, NodeGpu
from bindery.nodeagent.gpuclaims import offers
from bindery.nodeagent.gpuclaims.offers import Gpus, OfferedGpu, OfferError, WatchedGpus
from tests.nodeagent.gpuclaims.claimedgpus import FIRST, GPUS, soon


def test_gpus_are_offered_by_their_index_and_in_mig_mode_their_instances() -> None:
    second = NodeGpu(uuid="GPU-b", index=1, memory_mib=40960, problem="fell off the bus")
    first = NodeGpu(uuid="GPU-a", index=0, model="H100", memory_mib=81920, numa_node=1)
    place = MigRange(start=0, size=1)
    instance = MigSlice(uuid="MIG-d", profile="1g.5gb", memory_mib=4864, placement=place)
    divided = NodeGpu(uuid="GPU-c", index=2, memory_mib=40960, is_mig=True, mig_slices=(instance,))
    empty = NodeGpu(uuid="GPU-e", index=3, memory_mib=40960, is_mig=True)

    found = offers.offered((second, first, divided, empty))

    assert found == (
        OfferedGpu(0, "GPU-a", "H100", 81920, numa_node=1),
        OfferedGpu(1, "GPU-b", "", 40960, problem="fell off the bus"),
        OfferedGpu(2, "MIG-d", "", 4864, profile="1g.5gb", parent_uuid="GPU-c"),
    )


@pytest.mark.parametrize(
    ("gpus", "reason"),
    [
        ([NodeGpu(uuid="GPU-a", memory_mib=1)], "less memory than 2 MiB"),
        ([NodeGpu(uuid="GPU-a")], "less memory than 2 MiB"),
        ([NodeGpu(uuid="GPU-a", memory_mib=9), NodeGpu(uuid="gpu.A", memory_mib=9)], "two GPUs"),
        ([NodeGpu(uuid="...", memory_mib=9)], "makes no name"),
        ([NodeGpu(uuid="g" * 64, memory_mib=9)], "makes no name"),
        ([NodeGpu(uuid=f"GPU-{n}", memory_mib=9) for n in range(65)], "at most 64"),
    ],
)
def test_gpus_that_cannot_be_offered_are_refused(gpus: list[NodeGpu], reason: str) -> None:
    with pytest.raises(OfferError, match=reason):
        offers.offered(gpus)


def test_the_root_complex_is_that_of_the_kernels_tree(tmp_path: Path) -> None:
    devices = tmp_path / "bus" / "pci" / "devices"
    place = tmp_path / "devices" / "pci0000:3a" / "0000:3a:00.0" / "0000:3b:00.0"
    devices.mkdir(parents=True)
    place.mkdir(parents=True)
    (devices / "0000:3b:00.0").symlink_to(place)

    assert offers.pcie_root("0000:3b:00.0", devices) == "pci0000:3a"
    assert offers.pcie_root("0000:3c:00.0", devices) == ""
    assert offers.pcie_root("../devices/pci0000:3a", devices) == ""
    assert offers.pcie_root("", devices) == ""


def test_the_name_of_a_gpu_stays_when_its_index_changes() -> None:
    moved = OfferedGpu(7, FIRST.uuid, FIRST.model, FIRST.memory_mib)

    assert moved.name == FIRST.name == "gpu-aaaaaaaa-0000"


async def test_a_change_wakes_those_who_wait_and_errors_keep_what_was() -> None:
    answers: list[Gpus | None] = [GPUS, None, (FIRST,)]

    def read() -> Gpus:
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if found is None:
            raise OfferError("no driver")
        return found

    watched = WatchedGpus(GPUS, read, soon)
    seen: list[Gpus] = []
    watched.on_change(lambda: seen.append(watched.now))
    work = asyncio.create_task(watched.run())

    await watched.change(10.0)

    work.cancel()
    assert seen == [(FIRST,)]
    assert not answers[1:]


async def test_the_wait_for_a_change_ends_without_one() -> None:
    def read() -> Gpus:
        return GPUS

    await WatchedGpus(GPUS, read, soon).change(0.001)
