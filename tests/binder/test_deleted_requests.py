"""A BindRequest that is deleted goes only when all that was prepared for it is taken back."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec

from bindery.api.names import ROLL_BACK_FINALIZER
from bindery.binder.requestevents import translate
from bindery.kube.objects.bindrequests import BindRequest
from tests.binder.binderworld import NAMESPACE, World, gang
from tests.binder.fakebinder import Binder, Script, Trouble, carry_through
from tests.binder.quicktime import play


def delete(world: World, name: str = "gang-0") -> BindRequest:
    """Delete a request, as people do, and as the API server does with the binder's finalizer."""
    stored = world.requests[NAMESPACE, name]
    meta = msgspec.structs.replace(
        stored.metadata,
        deletion_timestamp="2026-01-01T00:00:00Z",
        finalizers=[ROLL_BACK_FINALIZER],
    )
    return world.store(msgspec.structs.replace(stored, metadata=meta))


def steps(world: World) -> list[str]:
    """Return what was done, in order."""
    return [entry[0] for entry in world.log]


def test_a_request_that_is_deleted_at_work_goes_after_its_roll_back() -> None:
    world = World(keeps_time=True)
    gang(world, 2)
    binder = Binder(world, plugins=1, slow={"uid-gang-1": 60.0})

    async def act() -> None:
        binder.watch()
        binder.list_requests()
        await asyncio.sleep(1.0)
        assert world.prepared == {("claims-0", "uid-gang-0")}
        delete(world)
        await binder.settle()

    play(act())

    assert not world.prepared
    assert not world.requests
    assert steps(world)[-1] == "release"


def test_the_next_binder_takes_back_what_was_prepared_for_a_request_deleted_in_between() -> None:
    world = World()
    gang(world, 2)
    world.prepared.add(("claims-0", "uid-gang-0"))
    delete(world)

    play(carry_through(world, plugins=1))

    assert not world.prepared
    assert not world.bound()
    assert steps(world) == ["rollback", "rollback", "release"]


def test_a_binding_of_the_earlier_binder_is_void_before_the_request_goes() -> None:
    world, calls = World(), list[str]()
    gang(world, 1)
    delete(world)

    play(carry_through(world, plugins=0, before_call=calls.append))

    assert calls.index("void bindings") < calls.index("release")


def test_a_pod_that_the_earlier_binder_has_bound_keeps_what_was_prepared() -> None:
    world = World()
    gang(world, 2)
    world.prepared |= {("claims-0", "uid-gang-0"), ("claims-0", "uid-gang-1")}
    world.pods["gang-0"] = replace(world.pods["gang-0"], node="node-0")
    delete(world)

    play(carry_through(world, plugins=1))

    assert world.prepared == {("claims-0", "uid-gang-0")}
    assert not world.requests


def test_nothing_is_prepared_for_a_request_that_is_being_deleted() -> None:
    world = World()
    gang(world, 2)
    binder = Binder(world, plugins=1)

    async def act() -> None:
        binder.watch()
        delete(world)
        await binder.settle()

    play(act())

    assert "pre_bind" not in steps(world)
    assert not world.requests


def test_a_request_with_an_outcome_goes_without_a_roll_back() -> None:
    world = World()
    gang(world, 1)
    world.end("gang-0", phase="Succeeded")
    delete(world)

    play(carry_through(world, plugins=1))

    assert steps(world) == ["release"]


def test_a_request_stays_until_its_roll_back_succeeds() -> None:
    world, calls = World(), list[str]()
    gang(world, 1)
    world.prepared.add(("claims-0", "uid-gang-0"))
    delete(world)
    rollback = 4  # the calls before it read the pod and the node, and write to the pod
    script = Script({rollback: Trouble.ERROR})

    play(carry_through(world, script, plugins=1, before_call=calls.append))

    assert calls[rollback] == "rollback"
    assert calls[-2:] == ["rollback", "release"]
    assert not world.prepared


def test_a_binder_that_dies_while_it_takes_back_leaves_the_request_to_the_next() -> None:
    for number in range(6):
        world = World()
        gang(world, 1)
        world.prepared.add(("claims-0", "uid-gang-0"))
        delete(world)

        play(carry_through(world, Script({number: Trouble.DEATH_BEFORE}), plugins=1))

        assert not world.prepared
        assert not world.requests


def test_a_binder_that_stops_does_not_let_a_request_go() -> None:
    world = World()
    gang(world, 1)
    delete(world)
    binder = Binder(world, plugins=1)

    async def stopped(seconds: float) -> bool:
        del seconds
        return False

    binder.manager._dependencies = replace(binder.manager._dependencies, pause=stopped)

    async def act() -> None:
        binder.list_requests()
        await binder.settle()

    play(act())

    assert "release" not in steps(world)


def test_a_run_of_another_request_keeps_what_it_prepares_for_the_same_pod() -> None:
    world = World(keeps_time=True)
    gang(world, 1)
    gang(world, 1, name="other")
    pods = world.requests[NAMESPACE, "gang-0"].spec.statements[0].pods
    world.respecify(
        "other-0",
        statements=[
            msgspec.structs.replace(each, pods=pods)
            for each in world.requests[NAMESPACE, "other-0"].spec.statements
        ],
    )
    binder = Binder(world, plugins=2, slow={"uid-gang-0": 30.0})

    async def act() -> None:
        binder.watch()
        binder.intake.observe(world.requests[NAMESPACE, "other-0"], adopted=False)
        await asyncio.sleep(1.0)
        delete(world)
        await binder.settle()

    play(act())

    assert world.bound() == {"uid-gang-0": "node-0"}
    assert len(world.prepared) == 2
    assert (NAMESPACE, "gang-0") not in world.requests


def test_a_request_that_cannot_be_decoded_goes_when_it_is_deleted() -> None:
    world = World()
    gang(world, 1)
    raw: dict[str, Any] = msgspec.to_builtins(delete(world))
    raw["spec"]["statements"] = "none"
    binder = Binder(world)

    async def act() -> None:
        translate("MODIFIED", raw, binder.intake)
        await binder.settle()

    play(act())

    assert steps(world) == ["release"]
    assert not binder.notes.malformed
