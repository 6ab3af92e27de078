"""What is under way when a process dies or freezes arrives; nothing else of it happens."""

import asyncio
from collections.abc import Callable

import pytest

from tests.histories.loop import Process, SpinsError, VirtualLoop


@pytest.mark.parametrize("stop", [Process.kill, Process.freeze])
def test_what_a_process_has_sent_arrives_although_it_stops(stop: Callable[[Process], None]) -> None:
    loop, arrived = VirtualLoop(), list[str]()

    async def send() -> None:
        loop.outside(5.0, arrived.append, "sent")
        await asyncio.sleep(1.0)
        arrived.append("went on")

    process = loop.start("sender", send())
    loop.outside(0.5, stop, process)
    loop.run_until_complete(asyncio.sleep(10.0))

    assert arrived == ["sent"]
    loop.end()


def test_a_timer_that_is_cancelled_while_its_process_wakes_does_not_run() -> None:
    loop, ran = VirtualLoop(), list[str]()

    async def work() -> None:
        timer = loop.call_later(2.0, ran.append, "timer")
        loop.call_later(1.0, timer.cancel)
        await asyncio.sleep(20.0)

    process = loop.start("worker", work())
    loop.outside(0.5, process.freeze)
    loop.outside(5.0, loop.wake, process)
    loop.run_until_complete(asyncio.sleep(10.0))

    assert not ran
    loop.end()


def test_a_process_that_never_lets_others_run_is_found_by_its_looks_at_the_clock() -> None:
    loop = VirtualLoop()

    async def spin() -> None:
        while loop.time() < 1.0:
            pass

    loop.start("spinner", spin())
    with pytest.raises(SpinsError, match="spinner"):
        loop.run_until_complete(asyncio.sleep(10.0))
    loop.end()
