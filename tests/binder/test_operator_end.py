"""The end of kopf in the binder's event loop."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import kopf
import pytest

from bindery.binder import operator
from bindery.binder.operator import Operator
from bindery.binder.statements.intake import Intake
from bindery.kube.access.credentials import Credentials

STEPS = 20
"""Rounds of the event loop that kopf takes to end."""


async def test_kopf_ends_although_the_process_was_frozen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the freeze all time limits are over at once."""
    cancellations = []

    async def watch() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancellations.append("watch")
                for _ in range(STEPS):
                    await asyncio.sleep(0)
                raise

    watching = asyncio.create_task(watch())

    async def spawn_tasks(**_: Any) -> list[asyncio.Task[None]]:
        return [watching]

    monkeypatch.setattr(kopf, "spawn_tasks", spawn_tasks)
    monkeypatch.setattr(operator, "_STOP_S", 0.1)
    running = Operator(cast("Intake", None), cast("Credentials", None), "me", lambda: None)
    work = asyncio.create_task(running.run())
    while not running.is_alive:  # noqa: ASYNC110  nobody tells us
        await asyncio.sleep(0)

    work.cancel()
    await asyncio.sleep(0)  # kopf's tasks are cancelled
    time.sleep(0.3)  # noqa: ASYNC251 -- the whole process stands still
    await asyncio.wait({work})

    assert watching.cancelled()
    assert cancellations == ["watch"], "once is enough"
    assert not running.is_alive


async def test_a_watch_left_open_by_kopf_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when kopf is cancelled while it handles an event."""
    closed = []

    @asynccontextmanager
    async def block() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.sleep(0)
            closed.append("block")

    async def infinite_watch() -> AsyncIterator[int]:
        try:
            async with block():
                while True:
                    yield 1
        finally:
            closed.append("watch")

    stream = infinite_watch()

    async def watch() -> None:
        async for _ in stream:
            await asyncio.sleep(3600)

    watching = asyncio.create_task(watch())

    async def spawn_tasks(**_: Any) -> list[asyncio.Task[None]]:
        return [watching]

    monkeypatch.setattr(kopf, "spawn_tasks", spawn_tasks)
    running = Operator(cast("Intake", None), cast("Credentials", None), "me", lambda: None)
    work = asyncio.create_task(running.run())
    while not running.is_alive:  # noqa: ASYNC110 -- no event shows it
        await asyncio.sleep(0)

    work.cancel()
    await asyncio.wait({work})

    assert closed == ["block", "watch"]
