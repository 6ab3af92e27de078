"""What hurt users of Kubernetes' scheduler and of Koordinator: memory that is not the cluster."""

import asyncio
from typing import Any

import pytest

from bindery.api.names import POD_GROUP_ANNOTATION, SUB_GROUP_LABEL
from bindery.kube.objects.resources import NODES, PODS
from tests.histories.apiserver.store import Change
from tests.histories.known.knownworld import KnownHistory, KnownWorld, plan
from tests.histories.known.objects import group, pod
from tests.histories.plan import FaultKind
from tests.histories.world import NAMESPACE
from tests.sizes import CHANCES

SCHEDULERS = ("scheduler-0", "scheduler-1")


async def expect_whole_cluster(world: KnownWorld, cores: int) -> None:
    """See that a gang gets all cores."""
    await world.submit(group("all", cores), [pod(f"all-{index}", "all") for index in range(cores)])
    await world.until(lambda: world.bound("all") == cores, within_s=30.0)


@pytest.mark.parametrize("seed", CHANCES)
def test_nothing_is_kept_of_a_pod_that_is_created_again_while_it_is_planned(seed: int) -> None:
    """kubernetes #138324: the pod in flight was forgotten by name, and stayed under its old UID."""

    async def people(world: KnownWorld) -> None:
        await world.submit(group("g", 2), [])
        for _ in range(12):
            for name in ("g-0", "g-1"):
                await world.client.create(PODS, pod(name, "g", 3), NAMESPACE)
            await asyncio.sleep(world.chance.uniform(0.0, 0.4))
            await world.remove("g-0", "g-1")
        await expect_whole_cluster(world, 8)

    KnownHistory(plan(seed, nodes=2), people).expect()


@pytest.mark.parametrize("seed", CHANCES)
def test_pods_that_went_unseen_hold_no_room(seed: int) -> None:
    """kubernetes #106102: the deletion of a pod was missed, and its room was counted for ever."""

    async def people(world: KnownWorld) -> None:
        pods = [pod(f"g-{index}", "g", 2) for index in range(4)]
        await world.submit(group("g", 4), pods)
        await world.until(lambda: world.bound("g") == 4)
        for name in SCHEDULERS:
            world.network.line(name).faults[FaultKind.CUT] = 0.0
            world.network.line(name).break_watches()
        await world.disband("g")
        await world.submit(group("g", 4), [pod(f"g-{index}", "g", 1) for index in range(4)])
        await asyncio.sleep(world.chance.uniform(1.0, 8.0))
        for name in SCHEDULERS:
            world.network.line(name).faults.clear()
        await world.until(lambda: world.bound("g") == 4)
        await world.disband("g")
        await expect_whole_cluster(world, 8)

    KnownHistory(plan(seed, nodes=2), people).expect()


@pytest.mark.parametrize("seed", CHANCES)
def test_a_node_that_is_created_again_still_has_its_pods(seed: int) -> None:
    """kubernetes #93938: pods of a node that came back under its name were lost from view.

    Others were then placed on top of them.
    """

    async def people(world: KnownWorld) -> None:
        await world.submit(group("g", 2), [pod(f"g-{index}", "g", 3) for index in range(2)])
        await world.until(lambda: world.bound("g") == 2)
        node: dict[str, Any] = world.server.find("nodes", "", "n0")  # type: ignore[assignment]
        meta = {"name": "n0", "labels": node["metadata"]["labels"]}
        again = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
        world.collects_pods = False  # it is back before they are
        await world.client.delete(NODES, "n0")
        await world.client.create(NODES, {**again, "status": node["status"]})
        world.collects_pods = True
        await world.submit(group("h", 1), [pod("h-0", "h", 2)])
        await asyncio.sleep(30.0)
        assert (world.bound("g"), world.bound("h")) == (2, 0)
        await world.disband("g")
        await world.until(lambda: world.bound("h") == 1)

    KnownHistory(plan(seed, nodes=2), people).expect()


@pytest.mark.parametrize("seed", CHANCES)
def test_two_gangs_of_which_one_fits_do_not_hold_a_half_each(seed: int) -> None:
    """Koordinator #872: of two groups of gangs each got one gang, and none the other, for ever."""

    async def people(world: KnownWorld) -> None:
        for name in ("ab", "cd"):
            parts = [{"name": part, "minMember": 4} for part in name]
            await world.submit(group(name, 8, subGroups=parts), [])
        for part, gang in (("a", "ab"), ("c", "cd"), ("b", "ab"), ("d", "cd")):
            for index in range(4):
                labels = {SUB_GROUP_LABEL: part}
                body = pod(f"{part}-{index}", gang, run_s=20.0, labels=labels)
                await world.client.create(PODS, body, NAMESPACE)
        for gang in ("ab", "cd"):
            await world.until_all(gang, "Succeeded")

    played = KnownHistory(plan(seed, nodes=2), people).expect()

    gangs = gangs_bound_in_order(played.writes)
    assert gangs in (["ab"] * 8 + ["cd"] * 8, ["cd"] * 8 + ["ab"] * 8)


def gangs_bound_in_order(writes: list[Change]) -> list[str]:
    """Return the gang of each of its pods in the order of their bindings."""
    pods = [each.version.object for each in writes if each.writer.subresource == "binding"]
    named = [pod["metadata"].get("annotations", {}).get(POD_GROUP_ANNOTATION) for pod in pods]
    return [gang for gang in named if gang]  # the pods that ask for all free room have none
