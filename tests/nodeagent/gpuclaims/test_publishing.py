"""The slice of a node is kept at the API server, whoever deletes it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bindery.kube.objects.devices import RESOURCE_SLICES
from bindery.nodeagent.gpuclaims import slices
from bindery.nodeagent.gpuclaims.publishing import SlicePublisher
from tests.histories.apiserver.refusals import conflict
from tests.nodeagent.gpuclaims.claimedgpus import FIRST, GPUS, NODE, SECOND, Arena, until

NAME = slices.slice_name(NODE)


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    arena = Arena(tmp_path)
    arena.server.add("nodes", {"metadata": {"name": NODE}})
    return arena


@asynccontextmanager
async def publishing(arena: Arena) -> AsyncIterator[SlicePublisher]:
    gpus = arena.watched()
    publisher = SlicePublisher(arena.client, NODE, gpus)
    tasks = [asyncio.create_task(work()) for work in (gpus.run, publisher.run)]
    try:
        yield publisher
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def found(arena: Arena, name: str = NAME) -> Mapping[str, Any]:
    return arena.server.find("resourceslices", "", name) or {}


def generation(arena: Arena) -> int:
    return int(found(arena).get("spec", {}).get("pool", {}).get("generation", 0))


async def test_the_slice_is_written_once_and_again_when_the_gpus_change(arena: Arena) -> None:
    async with publishing(arena) as publisher:
        await until(lambda: generation(arena) == 1 and publisher.healthy())
        assert [each["name"] for each in found(arena)["spec"]["devices"]] == [
            FIRST.name,
            SECOND.name,
        ]

        arena.given.append((replace(FIRST, problem="fell off the bus"), SECOND))
        await until(lambda: generation(arena) == 2 and publisher.healthy())

        assert "taints" in found(arena)["spec"]["devices"][0]
        await asyncio.sleep(0.05)
        assert generation(arena) == 2


async def test_a_restart_writes_nothing(arena: Arena) -> None:
    async with publishing(arena) as publisher:
        await until(publisher.healthy)
    before = found(arena)["metadata"]["resourceVersion"]

    async with publishing(arena) as publisher:
        await until(publisher.healthy)

    assert found(arena)["metadata"]["resourceVersion"] == before


async def test_a_slice_that_is_deleted_comes_back_with_a_later_generation(arena: Arena) -> None:
    async with publishing(arena) as publisher:
        await until(publisher.healthy)
        uid = found(arena)["metadata"]["uid"]

        await arena.client.delete(RESOURCE_SLICES, NAME)

        await until(lambda: generation(arena) == 2)
        assert found(arena)["metadata"]["uid"] != uid


async def test_slices_of_an_earlier_run_go_and_those_of_others_stay(arena: Arena) -> None:
    def add(name: str, driver: str, node: str) -> None:
        pool = {"name": node, "generation": 7, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": node, "pool": pool}
        arena.server.add("resourceslices", {"metadata": {"name": name}, "spec": spec})

    add("former", slices.DRIVER, NODE)
    add("of-another-node", slices.DRIVER, "gpu-2")
    add("of-another-driver", "gpu.nvidia.com", NODE)

    async with publishing(arena) as publisher:
        await until(lambda: publisher.healthy() and not found(arena, "former"))

    names = {each["metadata"]["name"] for each in arena.server.objects("resourceslices")}
    assert names == {NAME, "of-another-node", "of-another-driver"}
    assert generation(arena) == 8


async def test_a_slice_that_someone_else_changed_is_put_right(arena: Arena) -> None:
    async with publishing(arena) as publisher:
        await until(publisher.healthy)

        await arena.client.patch(RESOURCE_SLICES, NAME, {"spec": {"devices": []}})

        await until(lambda: generation(arena) == 2)
        assert len(found(arena)["spec"]["devices"]) == len(GPUS)


async def test_a_conflict_is_tried_again(arena: Arena) -> None:
    refused: list[str] = []

    def refuse(call: Any) -> Any:
        if call.verb in {"create", "update"} and len(refused) < 2:
            refused.append(call.verb)
            return conflict("resourceslices", NAME, "too late")
        return None

    arena.server.refuse = refuse
    async with publishing(arena) as publisher:
        await until(publisher.healthy)

    assert refused == ["create", "create"]
    assert generation(arena) == 1


async def test_without_gpus_there_is_no_slice(arena: Arena) -> None:
    async with publishing(arena) as publisher:
        await until(publisher.healthy)
        arena.given.append(())

        await until(lambda: not found(arena))


async def test_the_slice_waits_for_the_node(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bindery.nodeagent.gpuclaims.publishing._NODE_AGAIN_S", 0.02)
    arena = Arena(arena.directory)
    async with publishing(arena) as publisher:
        await asyncio.sleep(0.05)
        assert not found(arena)
        assert not publisher.healthy()

        arena.server.add("nodes", {"metadata": {"name": NODE}})

        await until(publisher.healthy)
        assert generation(arena) == 1
