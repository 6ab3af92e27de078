"""Cycles beside the event loop: it is never blocked, and a cycle that hangs is reported."""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from bindery.scheduler.background import BackgroundRunner
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.cycles import CycleHangsError
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import TaskStatus
from bindery.scheduler.planning.rounds import Deadline
from bindery.scheduler.plugins.registry import PluginSet, load
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import configuration, engine_with, gang, node, plan, pod

LONG_S = 60.0


class Blocking:
    """A plugin that calls `block` whenever a job is looked at."""

    name = "blocking"

    def __init__(self, block: Callable[[], None]) -> None:
        self.block = block

    def invalid(self, session: object, job: object) -> None:  # noqa: ARG002
        self.block()


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Lets threads that a test has left hanging go at its end."""
    event = threading.Event()
    yield event
    event.set()


def with_plugin(engine: Engine, plugin: Any) -> Engine:
    built_in = load(configuration().plugins)
    engine._plugins = PluginSet([*built_in.plugins, plugin], built_in.seconds)
    return engine


async def run(
    engine: Engine,
    runner: BackgroundRunner | None = None,
    take: Callable[[StatementDraft], None] = lambda _: None,
    limit_s: float = LONG_S,
) -> None:
    deadline, runner = Deadline(LONG_S, time.monotonic), runner or BackgroundRunner()
    await runner.run(engine.cycle(deadline=deadline), take, deadline, limit_s)


async def test_the_event_loop_goes_on_while_a_plugin_blocks_or_computes() -> None:
    counted = 0

    async def count() -> None:
        nonlocal counted
        while True:
            await asyncio.sleep(0)
            counted += 1

    seen: list[int] = []

    def block_then_compute() -> None:
        before = counted
        while counted < before + 3:  # ends only if the event loop goes on meanwhile
            time.sleep(0.001)
        before = counted
        while counted < before + 3:
            pass
        seen.append(counted)

    engine = with_plugin(engine_with(node("n"), *gang("g", 2)), Blocking(block_then_compute))
    drafts: list[StatementDraft] = []
    counting = asyncio.create_task(count())

    await run(engine, take=drafts.append)

    counting.cancel()
    assert seen
    assert len(drafts) == 1


async def test_drafts_arrive_in_order_in_the_event_loops_thread() -> None:
    engine, whole = (
        engine_with(node("n", 64), *(item for i in range(9) for item in gang(f"g{i}", 2)))
        for _ in range(2)
    )
    expected = [draft.name for draft in whole.cycle()]
    taken: list[tuple[str, int]] = []

    await run(engine, take=lambda d: taken.append((d.name, threading.get_ident())))

    assert taken == [(name, threading.get_ident()) for name in expected]


async def test_an_error_of_a_cycle_is_raised_where_the_cycle_is_awaited() -> None:
    def broken() -> Generator[StatementDraft, None, None]:
        yield from engine_with(node("n"), *gang("g", 2)).cycle()
        raise ZeroDivisionError

    drafts: list[StatementDraft] = []
    runner = BackgroundRunner()

    with pytest.raises(ZeroDivisionError):
        await runner.run(broken(), drafts.append, Deadline(LONG_S, time.monotonic), LONG_S)

    assert len(drafts) == 1

    assert runner.is_healthy()
    assert not runner.has_finished


async def test_a_cycle_that_hangs_is_reported_and_unhealthy(released: threading.Event) -> None:
    def hang() -> None:
        released.wait()

    engine = with_plugin(engine_with(node("n"), *gang("g", 2)), Blocking(hang))
    runner = BackgroundRunner()

    with pytest.raises(CycleHangsError) as raised:
        await run(engine, runner, limit_s=0.2)

    assert "hang" in raised.value.stack
    assert not runner.is_healthy()


async def test_a_cycle_that_is_cancelled_stops_between_two_jobs_and_leaves_nothing_behind() -> None:
    engine, whole = (
        engine_with(node("n", 64), *(item for i in range(9) for item in gang(f"g{i}", 2)))
        for _ in range(2)
    )
    everything = plan(whole)
    third, go_on = threading.Event(), threading.Event()
    asked = 0

    def stop_at_the_third() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            third.set()
            go_on.wait()

    with_plugin(engine, Blocking(stop_at_the_third))
    taken: list[StatementDraft] = []
    runner = BackgroundRunner()
    running = asyncio.create_task(run(engine, runner, taken.append))
    await asyncio.to_thread(third.wait)

    running.cancel()
    await asyncio.sleep(0.01)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert not runner.has_finished
    state = engine.cluster.state
    assert {task.name for draft in taken for task in draft.tasks} == {
        f"g{i}-{k}" for i in range(2) for k in range(2)
    }
    for draft in (*taken, *runner.dropped):
        engine.refused(draft)
    assert view(state) == recount(state)
    assert {task.status for task in state.tasks.values()} == {TaskStatus.PENDING}
    assert plan(with_plugin(engine, Blocking(lambda: None))) == everything


async def test_a_cycle_that_does_not_stop_after_its_cancellation_hangs(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bindery.scheduler.background.STOP_S", 0.1)

    def hang() -> None:
        released.wait()

    engine = with_plugin(engine_with(node("n"), pod("p")), Blocking(hang))
    running = asyncio.create_task(run(engine))
    await asyncio.sleep(0.05)

    running.cancel()

    with pytest.raises(CycleHangsError):
        await running
