"""The GPUs that a node offers, read from a file."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from bindery.nodeagent.gpuclaims import offers
from bindery.nodeagent.gpuclaims.offers import Gpus, OfferedGpu, OfferError, WatchedGpus
from tests.nodeagent.gpuclaims.claimedgpus import FIRST, GPUS


def write(path: Path, *gpus: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"gpus": gpus}))
    return path


async def test_a_file_has_the_gpus_in_the_order_of_their_index(tmp_path: Path) -> None:
    second = {"uuid": "GPU-b", "index": 1, "memoryMib": 40960, "problem": "fell off the bus"}
    first = {"uuid": "GPU-a", "index": 0, "model": "H100", "memoryMib": 81920, "numaNode": 1}

    found = await offers.read_file(write(tmp_path / "gpus.yaml", second, first))

    assert found == (
        OfferedGpu(0, "GPU-a", "H100", 81920, numa_node=1),
        OfferedGpu(1, "GPU-b", "", 40960, problem="fell off the bus"),
    )


@pytest.mark.parametrize(
    ("gpus", "reason"),
    [
        ([{"uuid": "GPU-a", "memoryMib": 1}], "less memory than 2 MiB"),
        ([{"uuid": "GPU-a"}], "memoryMib"),
        ([{"uuid": "GPU-a", "memoryMib": 9, "cores": 3}], "cores"),
        ([{"uuid": "GPU-a", "memoryMib": 9}, {"uuid": "gpu.A", "memoryMib": 9}], "two GPUs"),
        ([{"uuid": "...", "memoryMib": 9}], "makes no name"),
        ([{"uuid": "g" * 64, "memoryMib": 9}], "makes no name"),
        ([{"uuid": f"GPU-{n}", "memoryMib": 9} for n in range(65)], "at most 64"),
    ],
)
async def test_gpus_that_cannot_be_offered_are_refused(
    tmp_path: Path, gpus: list[dict[str, Any]], reason: str
) -> None:
    with pytest.raises(OfferError, match=reason):
        await offers.read_file(write(tmp_path / "gpus.yaml", *gpus))


async def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OfferError, match="none"):
        await offers.read_file(tmp_path / "none.yaml")


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


async def test_a_change_wakes_those_who_wait_and_errors_keep_what_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offers, "_POLL_S", 0.001)
    answers: list[Gpus | None] = [GPUS, None, (FIRST,)]

    async def read() -> Gpus:
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if found is None:
            raise OfferError("no driver")
        return found

    watched = WatchedGpus(GPUS, read)
    seen: list[Gpus] = []
    watched.on_change(lambda: seen.append(watched.now))
    work = asyncio.create_task(watched.run())

    await watched.change(10.0)

    work.cancel()
    assert seen == [(FIRST,)]
    assert not answers[1:]


async def test_the_wait_for_a_change_ends_without_one() -> None:
    async def read() -> Gpus:
        return GPUS

    await WatchedGpus(GPUS, read).change(0.001)
