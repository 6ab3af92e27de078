"""Cycles in the event loop keep the promises of cycles in a thread, on a virtual clock."""

import asyncio
from collections.abc import Coroutine

import pytest

from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.cycles import CycleHangsError
from bindery.scheduler.engine import Engine
from bindery.scheduler.planning.rounds import Deadline
from tests.binder.quicktime import play
from tests.histories.steppedcycles import SteppedCycles
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import engine_with, gang, node, plan

GANGS = 9


def world() -> Engine:
    items = (item for number in range(GANGS) for item in gang(f"g{number}", 2))
    return engine_with(node("n", 64), *items)


def run(
    engine: Engine, runner: SteppedCycles, taken: list[StatementDraft], limit_s: float = 60.0
) -> Coroutine[object, object, None]:
    deadline = Deadline(1.0, runner.clock)
    return runner.run(engine.cycle(deadline=deadline), taken.append, deadline, limit_s)


def test_the_budget_ends_a_cycle_and_the_next_one_continues_it() -> None:
    engine, taken, cycles = world(), list[StatementDraft](), 0

    async def until_all_are_planned() -> None:
        nonlocal cycles
        while not cycles or engine.report.is_cut:
            await run(engine, SteppedCycles(lambda: 0.2), taken)
            cycles += 1

    play(until_all_are_planned())

    assert cycles > 1
    assert sorted(draft.name for draft in taken) == sorted(each.name for each in world().cycle())


def test_a_cycle_that_works_for_longer_than_its_limit_hangs() -> None:
    async def hang() -> None:
        with pytest.raises(CycleHangsError):
            await run(world(), SteppedCycles(lambda: 100.0), [])

    play(hang())


def test_other_work_goes_on_between_drafts_and_a_cancelled_cycle_leaves_nothing_behind() -> None:
    engine, taken = world(), list[StatementDraft]()

    async def cancel_after_two() -> None:
        runner = SteppedCycles(lambda: 0.01)
        running = asyncio.create_task(run(engine, runner, taken))
        while len(taken) < 2:  # noqa: ASYNC110 -- no event shows it
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not runner.has_finished
        for draft in (*taken, *runner.dropped):
            engine.refused(draft)

    play(cancel_after_two())

    assert 2 <= len(taken) < GANGS
    state = engine.cluster.state
    assert view(state) == recount(state)
    assert plan(engine) == plan(world())
