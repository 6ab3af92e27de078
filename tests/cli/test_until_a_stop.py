"""Work before the start of a process, such as waiting for a certificate, ends at a stop."""

import asyncio

import pytest

from bindery.cli.processes.running import unless_stopped


async def test_work_that_ends_is_done() -> None:
    assert await unless_stopped(asyncio.sleep(0), asyncio.Event())


async def test_a_stop_ends_the_work() -> None:
    stop, working = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def work() -> None:
        working.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("work")

    waiting = asyncio.create_task(unless_stopped(work(), stop))
    await working.wait()
    stop.set()

    assert not await waiting
    assert ended == ["work"]


async def test_an_error_of_the_work_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("no certificate")

    with pytest.raises(ValueError, match="no certificate"):
        await unless_stopped(fail(), asyncio.Event())
