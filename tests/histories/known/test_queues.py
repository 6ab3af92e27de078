"""What hurt users of Kueue and Volcano: quota that leaks, gangs that come and go for ever."""

import asyncio
from typing import Final

import pytest

from bindery.api.quantity import parse
from bindery.kube.objects.queues import Queue
from bindery.kube.objects.resources import PODS, QUEUES
from tests.histories.known.knownworld import KnownHistory, KnownWorld, plan, taken_by
from tests.histories.known.objects import Body, group, pod, queue
from tests.histories.reading import all_of
from tests.histories.world import LIMITED, NAMESPACE
from tests.sizes import CHANCES

LIMIT: Final = 4


def pods(gang: str, size: int, cores: int = 1, run_s: float | None = None) -> list[Body]:
    """Return the pods of a gang."""
    return [pod(f"{gang}-{index}", gang, cores, run_s=run_s) for index in range(size)]


def allocated(world: KnownWorld, name: str) -> int:
    """Return the thousandths of cores that a queue counts."""
    found: list[Queue] = all_of(world.server, QUEUES)
    amounts = next(each for each in found if each.metadata.name == name).status.allocated
    return parse(amounts.get("cpu", "0"), "cpu")


async def expect_whole_limit(world: KnownWorld) -> None:
    """See that a queue counts nothing, and that a gang gets all of its limit."""
    await world.until(lambda: allocated(world, LIMITED) == 0)
    await world.submit(group("whole", LIMIT, LIMITED), pods("whole", LIMIT))
    await world.until(lambda: world.bound("whole") == LIMIT, within_s=20.0)


@pytest.mark.parametrize("seed", CHANCES)
def test_a_gang_that_is_evicted_gives_its_quota_back(seed: int) -> None:
    """Kueue #14811: a workload that was evicted and stopped kept its quota reserved for hours."""

    async def people(world: KnownWorld) -> None:
        await world.submit(group("g", LIMIT, LIMITED), pods("g", LIMIT))
        await world.until(lambda: world.phases("g") == ["Running"] * LIMIT)
        await world.remove("g-0")
        await world.until(lambda: not world.pods_of("g"))  # the broken gang is evicted
        await expect_whole_limit(world)

    played = KnownHistory(plan(seed, nodes=2, limit_cores=LIMIT), people).expect()

    assert sorted(taken_by(played, "scheduler")) == [f"g-{index}" for index in range(1, LIMIT)]


@pytest.mark.parametrize("seed", CHANCES)
@pytest.mark.parametrize("leaves", ["ends", "is deleted", "is deleted in flight"])
def test_no_quota_leaks_however_a_gang_leaves(seed: int, leaves: str) -> None:
    """Kueue #14609, #13660: quota of workloads that were gone stayed reserved."""

    async def people(world: KnownWorld) -> None:
        run_s = 3.0 if leaves == "ends" else None
        for number in range(6):
            name = f"g{number}"
            await world.submit(group(name, LIMIT, LIMITED), pods(name, LIMIT, run_s=run_s))
            if leaves == "ends":
                await world.until_all(name, "Succeeded")
            elif leaves == "is deleted":
                await world.until_bound(name, LIMIT)
            else:
                await asyncio.sleep(world.chance.uniform(0.0, 1.0))
            await world.disband(name)
        await expect_whole_limit(world)

    KnownHistory(plan(seed, nodes=2, limit_cores=LIMIT), people).expect()


@pytest.mark.parametrize("seed", CHANCES)
def test_a_gang_whose_failed_pod_is_not_replaced_is_not_placed_again(seed: int) -> None:
    """Kueue #12656: it was admitted, timed out, was evicted and admitted again, without end."""

    async def people(world: KnownWorld) -> None:
        await world.submit(group("g", 3), pods("g", 3))
        await world.until(lambda: world.phases("g") == ["Running"] * 3)
        failed = {"status": {"phase": "Failed"}}
        await world.client.patch(PODS, "g-0", failed, namespace=NAMESPACE, subresource="status")
        await world.until(lambda: world.phases("g") == ["Failed"])
        for name in ("g-3", "g-4"):  # what its controller creates for the two that were evicted
            await world.client.create(PODS, pod(name, "g"), NAMESPACE)
        await asyncio.sleep(60.0)
        assert world.bound("g") == 1  # the failed one
        await world.submit(group("other", 8), pods("other", 8))
        await world.until(lambda: world.bound("other") == 8)

    played = KnownHistory(plan(seed, nodes=2), people).expect()

    assert sorted(taken_by(played, "scheduler")) == ["g-1", "g-2"]


@pytest.mark.parametrize("seed", CHANCES)
def test_gangs_that_do_not_fit_neither_hold_others_up_nor_are_written_all_the_time(
    seed: int,
) -> None:
    """Kueue #9232: each event tried all waiting workloads again, and those behind them starved."""
    size = 9

    async def people(world: KnownWorld) -> None:
        for number in range(10):
            await world.submit(group(f"big{number}", size), pods(f"big{number}", size))
        for number in range(10):
            name = f"small{number}"
            await world.submit(group(name, 1), pods(name, 1, run_s=1.0))
            await world.until_bound(name, 1, 10.0)

    played = KnownHistory(plan(seed, nodes=2), people).expect()

    for number in range(10):
        written = [
            each
            for each in played.writes
            if each.kind.plural == "podgroups"
            and each.key[1] == f"big{number}"
            and each.writer.caller.startswith("scheduler")
        ]
        assert len(written) <= 15, number


@pytest.mark.parametrize("seed", CHANCES)
def test_a_gang_is_evicted_for_another_queue_once(seed: int) -> None:
    """Volcano #4947: the evicted pod was placed first again, as its queue then held least.

    Queue `one` deserves 3 cores and runs a pod of 4; queue `two` deserves 5, runs a pod of 1, and
    a pod of 4 waits. The pod of 4 in `one` was evicted, placed and evicted without end.
    """

    async def people(world: KnownWorld) -> None:
        await world.client.create(QUEUES, queue("top", {"quota": "8"}))
        for name, quota in (("one", "3"), ("two", "5")):
            cpu = {"quota": quota, "overQuotaWeight": 1}
            await world.client.create(QUEUES, queue(name, cpu, "top"))
        await world.submit(group("pod1", 1, "one"), pods("pod1", 1, 4))
        await world.submit(group("pod2", 1, "two"), pods("pod2", 1, 1))
        await world.until(lambda: world.bound("pod1") + world.bound("pod2") == 2)
        await world.submit(group("pod3", 1, "two"), pods("pod3", 1, 4))
        await world.until(lambda: not world.pods_of("pod1"))
        await world.client.create(PODS, pod("pod1-again", "pod1", 4), NAMESPACE)
        await world.until(lambda: world.bound("pod3") == 1)
        await asyncio.sleep(60.0)
        assert (world.bound("pod1"), world.bound("pod2"), world.bound("pod3")) == (0, 1, 1)

    played = KnownHistory(plan(seed, nodes=1, cores=8), people).expect()

    assert taken_by(played, "scheduler") == ["pod1-0"]
