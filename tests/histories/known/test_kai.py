"""What hurt users of KAI."""

import asyncio
from collections import Counter
from typing import Final

import pytest

from bindery.api import gpushare
from bindery.api.gpushare import RESERVATION_NAMESPACE
from bindery.kube.objects.claims import RESOURCE_CLAIMS
from bindery.kube.objects.devices import DEVICE_CLASSES, RESOURCE_SLICES
from bindery.kube.objects.watched import Pod
from tests.histories.apiserver.store import ChangeType
from tests.histories.known.knownworld import KnownHistory, KnownWorld, plan, taken_by
from tests.histories.known.objects import GRACE_S, Body, group, named, pod
from tests.histories.plan import FaultKind
from tests.histories.story import story
from tests.histories.world import NAMESPACE
from tests.sizes import CHANCES

DRIVER: Final = "channels.example.com"
BINDERS: Final = ("binder-0", "binder-1")
DEVICES: Final = "resource.k8s.io/v1"


def device_class() -> Body:
    """Return the class of all devices."""
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return {**named(DEVICES, "DeviceClass", "channel"), "spec": {"selectors": [selector]}}


def device_slice(node: str) -> Body:
    """Return the slice of a node with one device."""
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "channel-0"}],
    }
    return {**named(DEVICES, "ResourceSlice", f"channel-{node}"), "spec": spec}


async def submit_with_devices(world: KnownWorld, gang: str, size: int, *, cores: int) -> None:
    """Create a gang of which each pod has a claim of one device, under its own name."""
    names = [f"{gang}-{index}" for index in range(size)]
    for name in names:
        request = {"name": "channel", "exactly": {"deviceClassName": "channel"}}
        spec = {"devices": {"requests": [request]}}
        body = {**named(DEVICES, "ResourceClaim", name), "spec": spec}
        await world.client.create(RESOURCE_CLAIMS, body, NAMESPACE)
    claims = ([{"name": "channel", "resourceClaimName": name}] for name in names)
    pods = [
        pod(name, gang, cores, resourceClaims=claim)
        for name, claim in zip(names, claims, strict=True)
    ]
    await world.submit(group(gang, size), pods)


async def give_back(world: KnownWorld, claim: str) -> None:
    """Delete a claim whose pod is gone, and release its device, as Kubernetes' controller does."""
    await world.client.delete(RESOURCE_CLAIMS, claim, NAMESPACE)
    free = {"status": {"reservedFor": None, "allocation": None}}
    await world.client.patch(
        RESOURCE_CLAIMS, claim, free, namespace=NAMESPACE, subresource="status"
    )
    bare = {"metadata": {"finalizers": None}}
    await world.client.patch(RESOURCE_CLAIMS, claim, bare, namespace=NAMESPACE)


def groups_of(pod: Pod) -> list[str]:
    """Return the shared GPUs of a pod."""
    return list(gpushare.groups(pod.metadata.labels))


@pytest.mark.parametrize("seed", CHANCES)
def test_a_gang_whose_pods_finish_one_by_one_is_not_evicted(seed: int) -> None:
    """KAI #1968: pods that had succeeded vanished from the scheduler's view.

    The rest of their gang was below the minimum, and was evicted after the grace period.
    """

    async def people(world: KnownWorld) -> None:
        runs = (1.0, 1.0 + 2 * GRACE_S, 1.0 + 4 * GRACE_S)
        pods = [pod(f"g-{index}", "g", run_s=run_s) for index, run_s in enumerate(runs)]
        await world.submit(group("g", 3), pods)
        await world.until(lambda: world.phases("g") == ["Succeeded"] * 3)

    played = KnownHistory(plan(seed, nodes=2), people).expect()

    assert not taken_by(played, "scheduler")


@pytest.mark.parametrize("seed", CHANCES)
def test_devices_that_a_gang_could_not_get_are_free_for_the_next(seed: int) -> None:
    """KAI #1217: simulated allocations of claims stayed in the scheduler's memory.

    Idle nodes counted as full, until the scheduler was started again.
    """

    async def people(world: KnownWorld) -> None:
        await world.client.create(DEVICE_CLASSES, device_class())
        for index in range(4):
            await world.client.create(RESOURCE_SLICES, device_slice(f"n{index}"))
        await world.submit(group("occupant", 1), [pod("occupant-0", "occupant", 4)])
        await world.until(lambda: world.bound("occupant") == 1)
        await submit_with_devices(world, "rack", 4, cores=2)
        await asyncio.sleep(10.0)  # cycles that find devices for three of its pods
        assert world.bound("rack") == 0
        await submit_with_devices(world, "small", 3, cores=1)
        await world.until(lambda: world.bound("small") == 3, within_s=20.0)
        await world.disband("small")
        for index in range(3):
            await give_back(world, f"small-{index}")
        await world.disband("occupant")
        await world.until(lambda: world.bound("rack") == 4, within_s=20.0)

    KnownHistory(plan(seed, nodes=4), people).expect()


@pytest.mark.parametrize("seed", CHANCES)
def test_many_halves_of_gpus_at_once_are_two_on_each(seed: int) -> None:
    """KAI #2153: of 16 halves at once, four came onto one GPU, and reservations never ended."""

    async def people(world: KnownWorld) -> None:
        for index in range(16):
            name = f"half-{index}"
            await world.submit(group(name, 1), [pod(f"{name}-0", name, fraction="0.5")])
            if index == 8:
                binder = world.processes[world.leader("binder")]
                binder.dies_at_step = binder.steps + 50 + 150 * seed
        names = [f"half-{index}" for index in range(16)]
        await world.until(lambda: all(world.phases(name) == ["Running"] for name in names))
        groups = Counter(g for name in names for g in groups_of(world.pods_of(name)[0]))
        assert sorted(groups.values()) == [2] * 8

    KnownHistory(plan(seed, nodes=1, cores=20, gpus=8), people).expect()


@pytest.mark.parametrize("seed", CHANCES)
def test_a_shared_gpu_has_one_reservation_although_answers_are_lost(seed: int) -> None:
    """KAI #1673: a lagging cache let the binder reserve a second GPU for a group of sharers."""

    async def people(world: KnownWorld) -> None:
        for name in BINDERS:
            faults = {FaultKind.LAG: 3.0, FaultKind.LOSE_ANSWERS: 0.0}
            world.network.line(name).faults.update(faults)
        gangs = [f"share-{index}" for index in range(8)]
        for name in gangs:
            await world.submit(group(name, 1), [pod(f"{name}-0", name, fraction="0.25")])
            await asyncio.sleep(world.chance.uniform(0.0, 2.0))
        await asyncio.sleep(20.0)
        for name in BINDERS:
            world.network.line(name).faults.clear()
        await world.until(lambda: all(world.bound(name) for name in gangs))

    played = KnownHistory(plan(seed, nodes=2, cores=8, gpus=2), people).expect()

    there: dict[str, str] = {}
    for change in played.writes:
        space, name = change.key
        if change.kind.plural != "pods" or space != RESERVATION_NAMESPACE:
            continue
        if change.type is ChangeType.DELETED:
            there.pop(name)
            continue
        there[name] = "".join(gpushare.groups(change.version.object["metadata"]["labels"]))
        assert len(set(there.values())) == len(there), story(played)
