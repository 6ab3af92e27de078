"""The registry of Statements: its table of transitions, and the removal of parts."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from bindery.binder.statements import entries
from bindery.binder.statements.entries import OPEN, TRANSITIONS, UNDER_A_RUN, Event, State
from bindery.kube.objects.bindrequests import StatementSpec
from tests.binder.binderworld import World, share, statement
from tests.binder.fakebinder import Binder
from tests.binder.quicktime import play


def test_each_event_in_each_state_has_one_transition_drawn_in_the_docstring() -> None:
    rows = [line.split() for line in str(entries.__doc__).splitlines() if line.startswith("    ")]
    head, *drawn = rows
    table = [
        [state.name, *(after.name if after else "-" for after in after_each)]
        for state, after_each in TRANSITIONS.items()
    ]

    assert head == [event.name for event in Event]
    assert list(TRANSITIONS) == list(State)
    assert drawn == table


@pytest.mark.parametrize("state", State)
def test_every_state_has_transitions_for_all_events_of_the_watch(state: State) -> None:
    shown, changed, final, *_ = TRANSITIONS[state]

    assert None not in (shown, changed, final)
    assert final not in OPEN
    assert changed in (State.NEW, State.CHANGED)


@pytest.mark.parametrize("state", State)
def test_a_part_belongs_to_a_run_exactly_from_its_start_to_its_end(state: State) -> None:
    *shown, started, ended = TRANSITIONS[state]

    assert (ended is not None) == (state in UNDER_A_RUN)
    assert ended not in UNDER_A_RUN
    assert started is None or started in UNDER_A_RUN
    for after in shown:
        assert (after in UNDER_A_RUN) == (state in UNDER_A_RUN)


def copy_of_another(world: World, binder: Binder) -> None:
    mine = statement(world, "slow", 1)
    share(world, mine, name="original")
    share(world, mine, name="watched")
    binder.list_requests()


def refused(world: World, binder: Binder) -> None:
    share(world, StatementSpec(id="slow", pods=[]), name="watched")
    binder.list_requests()


def gathering(world: World, binder: Binder) -> None:
    whole = statement(world, "slow", 1)
    share(world, msgspec.structs.replace(whole, parts=2), name="watched")
    binder.list_requests()


def running(world: World, binder: Binder) -> None:
    share(world, statement(world, "slow", 1), name="watched")
    binder.list_requests()


def changed(world: World, binder: Binder) -> None:
    running(world, binder)
    binder.intake.observe(world.withdraw("watched", "slow"), adopted=False)


def settled(world: World, binder: Binder) -> None:
    whole = statement(world, "slow", 2)
    for number, name in enumerate(("watched", "other")):
        pods = whole.pods[number : number + 1]
        share(world, msgspec.structs.replace(whole, pods=pods, part=number, parts=2), name=name)
    binder.list_requests()
    binder.intake.observe(world.end("watched", phase="Failed", reason="NodeGone"), adopted=False)


def ended(world: World, binder: Binder) -> None:
    share(world, statement(world, "quick", 1), name="watched")
    binder.list_requests()


def finished(world: World, binder: Binder) -> None:
    binder.watch()
    ended(world, binder)


WAYS: list[tuple[State, Callable[[World, Binder], None]]] = [
    (State.COPY, copy_of_another),
    (State.REFUSED, refused),
    (State.GATHERING, gathering),
    (State.RUNNING, running),
    (State.CHANGED, changed),
    (State.SETTLED, settled),
    (State.ENDED, ended),
    (State.FINISHED, finished),
]


def test_every_state_is_reachable() -> None:
    assert {state for state, _ in WAYS} | {State.NEW} == set(State)


@pytest.mark.parametrize(("state", "lead"), WAYS)
def test_a_request_deleted_in_any_state_leaves_nothing(
    state: State, lead: Callable[[World, Binder], None]
) -> None:
    world = World(keeps_time=True)

    async def main() -> None:
        binder = Binder(world, slow={f"uid-slow-{n}": 600.0 for n in range(2)})
        lead(world, binder)
        if state not in (State.CHANGED, State.COPY):
            await asyncio.sleep(1.5)
        states = [
            part.state
            for entry in binder.manager.entries.values()
            for name, part in entry.carriers.items()
            if name == "watched"
        ]
        assert states == [state]
        for stored in list(world.requests.values()):
            del world.requests[stored.metadata.namespace, stored.metadata.name]
            binder.intake.gone(stored)
        await binder.settle()
        assert not binder.manager.entries
        assert not binder.manager._claims._holders
        assert len(binder.door.shared) == 0

    play(main())
