"""The end of kopf in the binder's event loop."""

import asyncio
import time
from typing import Any, cast

import kopf
import pytest

from bindery.binder import operator
from bindery.binder.intake import Intake
from bindery.binder.operator import Operator
from bindery.kube.credentials import Credentials

STEPS = 20
"""Rounds of the event loop that kopf takes to end."""


async def test_kopf_ends_although_the_process_was_frozen_meanwhile(
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
    running = Operator(cast("Intake", None), cast("Credentials", None), lambda: None)
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
