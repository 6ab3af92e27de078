"""A BindRequest is deleted while no binder leads, after a binder has prepared its pod."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bindery.binder.plugins.volumes.writes import CHOSEN_FOR, SELECTED_NODE
from bindery.kube.objects.resources import BIND_REQUESTS, NODES
from bindery.kube.objects.storage import CLAIMS, STORAGE_CLASSES
from tests.histories.known.knownworld import KnownHistory, KnownWorld, plan
from tests.histories.known.objects import group, named, pod
from tests.histories.reading import all_of
from tests.histories.world import NAMESPACE
from tests.sizes import CHANCES

BINDERS = ("binder-0", "binder-1")
CLAIM = "data"
SETTLED_S = 15.0
"""After which the scheduler has seen that a request cannot be carried out."""


async def submit(world: KnownWorld) -> None:
    """Create a gang of one pod, with a claim for which nothing makes a volume."""
    by_pod = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "slow.example.com"}
    slow = {**named("storage.k8s.io/v1", "StorageClass", "slow"), **by_pod}
    await world.client.create(STORAGE_CLASSES, slow)
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "slow",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    claim = {**named("v1", "PersistentVolumeClaim", CLAIM), "spec": spec}
    await world.client.create(CLAIMS, claim, NAMESPACE)
    data = {"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}
    await world.submit(group("g", 1), [pod("g-0", "g", volumes=[data])])


def mark(world: KnownWorld) -> str | None:
    """Return the node that a binder has written to the claim."""
    (claim,) = all_of(world.server, CLAIMS)
    annotations = claim.metadata.annotations
    assert (SELECTED_NODE in annotations) == (CHOSEN_FOR in annotations)
    return annotations.get(SELECTED_NODE)


def requests(world: KnownWorld) -> set[str]:
    """Return the UIDs of the requests that carry gangs."""
    stored = all_of(world.server, BIND_REQUESTS)
    return {each.metadata.uid for each in stored if each.spec.statements}


async def lose_pods(world: KnownWorld) -> None:
    """Delete the pod; the scheduler deletes the request."""
    await world.remove("g-0")


async def lose_gang(world: KnownWorld) -> None:
    """Delete the gang; the garbage collector deletes the request."""
    await world.disband("g")


async def lose_node(world: KnownWorld) -> None:
    """Delete the chosen node; the scheduler deletes the request."""
    await world.client.delete(NODES, mark(world) or "")


async def lose_request(world: KnownWorld) -> None:
    """Delete the request."""
    for each in all_of(world.server, BIND_REQUESTS):
        if each.spec.statements:
            await world.client.delete(BIND_REQUESTS, each.metadata.name, NAMESPACE)


@pytest.mark.parametrize("seed", CHANCES)
@pytest.mark.parametrize("lose", [lose_pods, lose_gang, lose_node, lose_request])
def test_the_next_binder_takes_back_what_a_frozen_one_wrote_for_a_deleted_request(
    seed: int, lose: Callable[[KnownWorld], Awaitable[None]]
) -> None:
    async def people(world: KnownWorld) -> None:
        await submit(world)
        await world.until(lambda: mark(world) is not None)
        first, other = mark(world), set(BINDERS) - {world.leader("binder")}
        before = requests(world)
        world.freeze(*BINDERS)
        await lose(world)
        await asyncio.sleep(SETTLED_S)
        world.wake(*other)
        await world.until(lambda: not before & requests(world))
        if lose in (lose_pods, lose_gang):
            assert mark(world) is None
        if lose is lose_node:
            await world.until(lambda: mark(world) not in (None, first))
        await world.client.delete(STORAGE_CLASSES, "slow")
        await world.remove("g-0")
        await world.until(lambda: mark(world) is None and not requests(world))

    KnownHistory(plan(seed, nodes=2), people).expect()
