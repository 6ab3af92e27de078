"""A picture is made at most once in ten seconds, and only while a person looks."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from bindery.answers.grouperrows import GrouperRows
from bindery.answers.source import Source
from bindery.dashboard.kept import KeptEngine
from bindery.dashboard.state import AGED_S, PLAN_EVERY_S, StateKeeper
from bindery.kube.errors import UnreachableError
from tests.dashboard.sites import Clock
from tests.inlinescenarios import scenario_of, source_of

SMALL = source_of(scenario_of("nodes: [{name: n, gpus: 1}]"))


@dataclass
class Changing:
    """A cluster that counts how often it is read."""

    changes: int = 0
    is_fixed: bool = False
    reads: int = 0
    error: Exception | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    kept: KeptEngine = field(default_factory=lambda: KeptEngine(SMALL.now.timestamp))

    def __post_init__(self) -> None:
        self.gate.set()

    async def source(self) -> Source:
        self.reads += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return SMALL

    async def grouper_rows(self) -> GrouperRows:
        return GrouperRows()

    def namespaces(self) -> list[str]:
        return []


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_requests_within_ten_seconds_get_the_same_picture() -> None:
    cluster, clock = Changing(), Clock()
    keeper = StateKeeper(cluster, clock)
    first = await keeper.picture()

    cluster.changes += 1
    clock.now += PLAN_EVERY_S - 0.1

    assert await keeper.picture() is first
    assert cluster.reads == 1


async def test_a_change_gives_a_new_picture_after_ten_seconds_without_letting_anyone_wait() -> None:
    cluster, clock = Changing(), Clock()
    keeper = StateKeeper(cluster, clock)
    first = await keeper.picture()
    cluster.changes += 1
    clock.now += PLAN_EVERY_S
    cluster.gate.clear()

    assert await keeper.picture() is first
    cluster.gate.set()
    second = await keeper.after(first.version, 30.0)

    assert second is not None
    assert second.version == first.version + 1
    assert await keeper.picture() is second


async def test_without_a_change_nothing_is_planned_until_the_picture_has_aged() -> None:
    cluster, clock = Changing(), Clock()
    keeper = StateKeeper(cluster, clock)
    await keeper.picture()

    clock.now += PLAN_EVERY_S * 2
    await keeper.picture()
    assert cluster.reads == 1

    clock.now += AGED_S
    await keeper.picture()
    assert cluster.reads == 2


async def test_a_person_who_comes_after_an_hour_waits_for_a_new_picture() -> None:
    cluster, clock = Changing(), Clock()
    keeper = StateKeeper(cluster, clock, patience_s=60.0)
    first = await keeper.picture()
    clock.now += 3600

    assert (await keeper.picture()).version == first.version + 1
    assert keeper.age_s == 0


async def test_who_comes_after_an_hour_gets_the_old_picture_if_the_plan_takes_long() -> None:
    cluster, clock = Changing(), Clock()
    keeper = StateKeeper(cluster, clock, patience_s=0.01)
    first = await keeper.picture()
    clock.now += 3600
    cluster.gate.clear()

    assert await keeper.picture() is first
    assert keeper.age_s == 3600


async def test_planning_takes_at_most_a_third_of_the_time() -> None:
    cluster, clock = Changing(), Clock()
    keeper = StateKeeper(cluster, clock)
    cluster.gate.clear()
    asking = asyncio.create_task(keeper.picture())
    await until(lambda: cluster.reads == 1)
    clock.now += 20  # so long takes the plan
    cluster.gate.set()
    await asking
    cluster.changes += 1

    clock.now += PLAN_EVERY_S
    await keeper.picture()
    assert cluster.reads == 1

    clock.now += 3 * 20
    await keeper.picture()
    await until(lambda: cluster.reads == 2)


async def test_a_file_is_planned_once() -> None:
    cluster, clock = Changing(is_fixed=True), Clock()
    keeper = StateKeeper(cluster, clock)
    first = await keeper.picture()
    clock.now += 3600
    cluster.changes += 1

    assert await keeper.picture() is first


async def test_after_the_first_picture_nothing_is_planned_without_an_open_page() -> None:
    cluster, clock = Changing(), Clock()
    keeper = StateKeeper(cluster, clock)
    task = asyncio.create_task(keeper.run(look_every_s=0.001))
    first = await keeper.picture()
    cluster.changes += 1
    clock.now += 3600
    await asyncio.sleep(0.1)
    assert cluster.reads == 1

    async with keeper.looking():
        assert await keeper.after(first.version, 60.0) is not None
    assert cluster.reads == 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_people_who_ask_at_once_share_one_plan() -> None:
    cluster = Changing()
    keeper = StateKeeper(cluster, Clock())

    found = await asyncio.gather(*(keeper.picture() for _ in range(20)))

    assert cluster.reads == 1
    assert len({id(each) for each in found}) == 1


async def test_an_error_is_raised_where_there_is_no_picture_and_else_the_old_one_shown() -> None:
    cluster, clock = Changing(error=UnreachableError("down")), Clock()
    keeper = StateKeeper(cluster, clock)
    with pytest.raises(UnreachableError):
        await keeper.picture()

    cluster.error = None
    first = await keeper.picture()
    cluster.error = UnreachableError("down")
    clock.now += 3600

    assert await keeper.picture() is first
    assert keeper.age_s >= 3600


async def test_no_request_waits_for_a_plan_that_will_take_long() -> None:
    cluster, clock = Changing(), Clock()
    keeper = StateKeeper(cluster, clock, patience_s=60.0)
    cluster.gate.clear()
    asking = asyncio.create_task(keeper.picture())
    await until(lambda: cluster.reads == 1)
    clock.now += 200  # so long takes the plan
    cluster.gate.set()
    first = await asking
    clock.now += 3600
    cluster.gate.clear()

    async with asyncio.timeout(30):
        assert await keeper.picture() is first
    assert keeper.is_planning


async def test_who_waits_for_news_in_vain_gets_none() -> None:
    keeper = StateKeeper(Changing(), Clock())
    first = await keeper.picture()

    assert await keeper.after(first.version, 0.01) is None
