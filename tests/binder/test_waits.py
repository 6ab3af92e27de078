"""The wait reasons of requests: in memory, over a fake API."""

import asyncio

from bindery.binder.outcome.outcome import WaitReason
from bindery.binder.statements.manager import UnwrittenWait
from tests.binder.binderworld import World, gang
from tests.binder.fakebinder import Binder


def unwritten(binder: Binder) -> list[UnwrittenWait]:
    return binder.manager.unwritten_waits(2.0)


async def held(world: World) -> tuple[Binder, asyncio.Event]:
    """Return a binder that has begun the gang of `world` and stands still at its first call."""
    binder, go_on = Binder(world), asyncio.Event()
    live = binder.door._live

    async def wait() -> None:
        await go_on.wait()
        await live()

    binder.door._live = wait  # type: ignore[method-assign]  # the door is a fake, made to stand still
    binder.list_requests()
    await asyncio.sleep(0)
    return binder, go_on


async def test_a_wait_reason_is_written_after_two_seconds_and_once() -> None:
    world = World()
    gang(world, 2)
    binder, go_on = await held(world)

    assert unwritten(binder) == []
    world.now += 3.0
    (found,) = unwritten(binder)
    assert found.statement == world.only("gang-0")
    assert found.wait.reason is WaitReason.WAITS_FOR_TURN

    binder.manager.wait_written(found.statement, None)
    assert unwritten(binder) == []
    go_on.set()
    await binder.settle()
    assert world.bound() == {"uid-gang-0": "node-0", "uid-gang-1": "node-1"}


async def test_extra_pods_name_the_statement_that_they_wait_for() -> None:
    world = World()
    gang(world, 2)
    (extras,) = gang(world, 1, name="extras", after="gang")
    binder, go_on = await held(world)
    world.now += 3.0

    said = {each.statement.metadata.name: each.wait for each in unwritten(binder)}

    assert said["extras-0"].reason is WaitReason.WAITS_FOR_REQUEST
    assert said["extras-0"].message == "prerequisite Statement gang has no outcome yet"
    assert extras.each()[0].status.reason == ""
    go_on.set()
    await binder.settle()


async def test_a_request_with_an_outcome_has_no_wait_reason() -> None:
    world = World()
    gang(world, 2)
    binder = Binder(world)
    binder.list_requests()
    await binder.settle()
    world.now += 3.0

    assert unwritten(binder) == []
