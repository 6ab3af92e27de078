"""What is under way when a process dies or freezes arrives; nothing else of it happens."""

import asyncio
from collections.abc import Callable

import pytest

from tests.histories.loop import Process, VirtualLoop


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
