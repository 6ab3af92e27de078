"""The parts that serve GPUs, on one reader of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from bindery.nodeagent.beside.gpuparts import GpuOptions, GpuParts
from bindery.nodeagent.devices.filesource import FileSource
from bindery.nodeagent.gpuclaims.slices import DRIVER
from tests.nodeagent.gpuclaims.claimedgpus import NODE, Arena, until

GPU = {"uuid": "GPU-a", "memoryMib": 1000}
INSTANCE = {
    "uuid": "MIG-b",
    "profile": "1g.5gb",
    "memoryMib": 100,
    "placement": {"start": 0, "size": 1},
}
DIVIDED = {
    "uuid": "GPU-b",
    "index": 1,
    "memoryMib": 1000,
    "isMig": True,
    "migSlices": [INSTANCE],
}


@dataclass(frozen=True)
class Place:
    """The directories of a node."""

    root: Path
    arena: Arena

    def write(self, *gpus: dict[str, Any]) -> None:
        (self.root / "gpus.json").write_text(json.dumps({"gpus": gpus}))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[GpuParts]:
        options = GpuOptions(
            source=FileSource(self.root / "gpus.json"),
            kubelet=self.root / "kubelet",
            has_claims=True,
            cdi=self.root / "cdi",
            root=self.root,
            every_s=0.05,
        )
        parts = GpuParts(self.arena.client, NODE, options)
        work = asyncio.create_task(parts.run())
        try:
            yield parts
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def offered(self) -> list[list[str]]:
        slices = self.arena.server.objects("resourceslices")
        return [[each["name"] for each in one["spec"]["devices"]] for one in slices]


@pytest.fixture
def place() -> Iterator[Place]:
    # The path of a socket has at most 107 characters.
    with TemporaryDirectory() as name:
        arena = Arena(Path(name) / "cdi")
        arena.server.add("nodes", {"metadata": {"name": NODE}})
        yield Place(Path(name), arena)


async def test_claims_offer_the_gpus_that_are_read_and_in_mig_mode_their_instances(
    place: Place,
) -> None:
    place.write(GPU, DIVIDED)

    async with place.running() as parts:
        await until(lambda: place.offered() == [["gpu-a", "mig-b"]])
        await until(lambda: all(check() for check in parts.checks().values()))
        place.write({**GPU, "uuid": "GPU-c"}, DIVIDED)
        # The one that is no longer reported stays as a sick one, as claims hold it.
        await until(lambda: place.offered() == [["gpu-a", "gpu-c", "mig-b"]])


async def test_gpus_that_cannot_be_read_at_the_start_do_not_take_the_slice_away(
    place: Place,
) -> None:
    place.write(GPU)
    async with place.running():
        await until(lambda: place.offered() == [["gpu-a"]])
    (place.root / "gpus.json").unlink()

    async with place.running() as parts:
        await asyncio.sleep(0.3)
        assert not parts.checks()["devices read"]()
        assert place.offered() == [["gpu-a"]]
        registered = place.root / "kubelet/plugins_registry" / f"{DRIVER}-reg.sock"
        assert not registered.exists()
        place.write(GPU)
        await until(registered.is_socket)
