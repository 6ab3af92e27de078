"""No binding of a pod that is given up takes effect later (decision 070)."""

import asyncio

import pytest

from bindery.api.bindrequest import Phase
from tests.binder.binderworld import World, gang
from tests.binder.fakebinder import Binder, Script, Trouble, carry_through
from tests.binder.quicktime import play


def run(world: World, *, adopted: bool) -> Binder:
    """Carry out all requests, as those of an earlier binder or as new ones."""
    binder = Binder(world, plugins=0)

    async def carry_out() -> None:
        for stored in list(world.requests.values()):
            binder.intake.observe(stored, adopted=adopted)
        await binder.settle()

    play(carry_out())
    return binder


@pytest.mark.parametrize("adopted", [True, False])
def test_a_pod_that_an_earlier_binder_may_have_bound_is_written_before_the_gang_fails(
    *, adopted: bool
) -> None:
    world = World()
    gang(world, 2)
    del world.pods["gang-1"]

    calls = run(world, adopted=adopted).door.calls

    assert {each.status.phase for each in world.statements()} == {Phase.FAILED}
    assert ("void bindings" in calls[: calls.index("patch status")]) is adopted


def test_a_pod_whose_binding_had_no_answer_is_written_before_the_gang_fails() -> None:
    world, calls = World(), list[str]()
    gang(world, 1, backoff_limit=0)
    send = 2  # the calls before it read the pod and the node
    script = Script({send: Trouble.LOST_BEFORE})

    play(carry_through(world, script, plugins=0, before_call=calls.append))

    assert calls[send] == "bind"
    assert "void bindings" in calls[: calls.index("patch status")]


def test_a_gang_does_not_fail_before_the_pod_could_be_written() -> None:
    world, failures = World(), 3
    gang(world, 2)
    del world.pods["gang-1"]
    binder = Binder(world, plugins=0)

    async def carry_out() -> None:
        left = iter(range(failures))

        def refuse(call: str) -> None:
            if call == "void bindings" and next(left, None) is not None:
                binder.door.script.troubles = {binder.door.script.calls: Trouble.ERROR}
            if call == "patch status" and not world.statements()[0].is_final:
                tried.append(world.pods["gang-0"].version)

        binder.door.before_call = refuse
        binder.list_requests()
        await binder.settle()
        await asyncio.sleep(0)

    tried = list[int]()
    play(carry_out())

    assert world.pods["gang-0"].version == 2
    assert {each.status.phase for each in world.statements()} == {Phase.FAILED}
    assert tried[-1] == 2, "the outcome was written before the pod"


def test_a_binding_of_a_pod_that_has_changed_is_sent_again_in_the_same_attempt() -> None:
    world = World()
    gang(world, 1, backoff_limit=0)
    changes = iter(range(2))

    def change(call: str) -> None:
        if call == "bind" and next(changes, None) is not None:
            world.pods["gang-0"].version += 1

    play(carry_through(world, plugins=0, before_call=change))

    assert world.statements()[0].status.phase == Phase.SUCCEEDED
    assert world.statements()[0].status.failed_attempts == 0
