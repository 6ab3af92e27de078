"""A Statement starts only after its prerequisite has succeeded. No API server."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.api.bindrequest import Phase
from bindery.binder.outcome.retention import finished
from bindery.binder.plugins.interface import PluginError
from bindery.kube.objects.bindrequests import BindRequest
from tests.binder.binderworld import NAMESPACE, World, gang
from tests.binder.fakebinder import Binder, Script, Trouble, carry_through
from tests.binder.quicktime import play
from tests.sizes import examples

REFUSED = {"uid-gang-1": PluginError("no")}


def extras(world: World, size: int = 2, **fields: Any) -> list[BindRequest]:
    """Add the request of extra pods, which comes after that of the gang `gang`."""
    return gang(world, size, name="extra", after="gang", min_bound=0, **fields)


def shown_last_first(world: World) -> World:
    """Let a binder that starts see the newest request first."""
    world.requests = dict(reversed(world.requests.items()))
    return world


def status_of(world: World, name: str) -> Any:
    return world.only(name).status


def bound(world: World) -> set[str]:
    return {uid.removeprefix("uid-") for uid in world.bound()}


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("newest_first", [False, True])
def test_extra_pods_are_bound_after_their_gang(parts: int, newest_first: bool) -> None:
    world = World()
    gang(world, 2, parts=parts)
    extras(world)
    if newest_first:
        shown_last_first(world)

    play(carry_through(world))

    order = [entry[1] for entry in world.log if entry[0] == "bind"]
    assert {uid[:8] for uid in order[:2]} == {"uid-gang"}
    assert len(order) == 4
    assert status_of(world, "extra-0").phase == "Succeeded"


@pytest.mark.parametrize("newest_first", [False, True])
def test_extra_pods_fail_when_their_gang_fails_after_retries(newest_first: bool) -> None:
    world = World()
    gang(world, 2, backoff_limit=2)
    extras(world)
    if newest_first:
        shown_last_first(world)

    play(carry_through(world, refuses=REFUSED))

    assert bound(world) == set()
    assert world.prepared == set()
    status = status_of(world, "extra-0")
    assert (status.phase, status.reason) == ("Failed", "PredecessorFailed")
    assert [pod.reason for pod in status.unbound_pods] == ["PredecessorFailed"] * 2
    assert status.failed_attempts == 0
    assert status_of(world, "gang-0").failed_attempts == 2


def test_extra_pods_are_not_changed_during_retries_of_their_gang() -> None:
    world = World()
    gang(world, 2, backoff_limit=3)
    extras(world)

    play(carry_through(world, refuses=REFUSED))

    assert not [entry for entry in world.log if entry[0] == "pre_bind" and "extra" in entry[1]]


def test_extra_pods_of_a_gang_without_a_statement_fail() -> None:
    world = World()
    extras(world)

    play(carry_through(world))

    assert bound(world) == set()
    assert status_of(world, "extra-0").reason == "PredecessorGone"


def test_extra_pods_observed_before_their_gangs_request_wait_for_it() -> None:
    """kopf keeps no order between the events of two requests."""
    world = World()
    (first,) = gang(world, 2)
    (second,) = extras(world)

    async def main() -> None:
        binder = Binder(world)
        asked = False

        def tell(call: str) -> None:
            nonlocal asked
            if call == "find statement" and not asked:
                asked = True
                binder.intake.observe(first, adopted=False)

        binder.door.before_call = tell
        binder.intake.observe(second, adopted=False)
        await binder.settle()
        assert asked

    play(main())

    assert len(bound(world)) == 4


@pytest.mark.parametrize("call", ["read pod", "pre_bind"])
def test_extra_pods_fail_if_the_gangs_request_is_deleted_during_its_run(call: str) -> None:
    world = World()
    gang(world, 2)
    extras(world)

    async def main() -> None:
        binder = Binder(world)

        def delete(name: str) -> None:
            gone = world.requests.pop((NAMESPACE, "gang-0"), None) if name == call else None
            if gone is not None:
                binder.intake.gone(gone)

        binder.door.before_call = delete
        binder.list_requests()
        await binder.settle()

    play(main())

    assert bound(world) == set()
    assert world.prepared == set()
    assert status_of(world, "extra-0").reason == "PredecessorGone"


def test_a_waiting_request_of_extra_pods_leaves_nothing_when_deleted() -> None:
    world = World()
    gang(world, 2)
    extras(world)

    async def main() -> None:
        binder = Binder(world)

        def delete(name: str) -> None:
            gone = world.requests.pop((NAMESPACE, "extra-0"), None) if name == "bind" else None
            if gone is not None:
                binder.intake.gone(gone)

        binder.door.before_call = delete
        binder.list_requests()
        await binder.settle()
        assert binder.manager.run_count == 0

    play(main())

    assert bound(world) == {"gang-0", "gang-1"}


def test_a_chain_of_statements_fails_from_its_first_failure_on() -> None:
    world = World()
    gang(world, 2, backoff_limit=0)
    extras(world)
    gang(world, 1, name="third", after="extra")

    play(carry_through(world, refuses=REFUSED))

    assert bound(world) == set()
    assert status_of(world, "third-0").reason == "PredecessorFailed"


def test_a_started_statement_is_completed_although_its_prerequisite_is_gone() -> None:
    world = World()
    gang(world, 2, name="second", after="gang")
    world.pods["second-0"].node = "node-0"

    play(carry_through(world))

    assert bound(world) == {"second-0", "second-1"}
    assert status_of(world, "second-0").phase == "Succeeded"


def test_a_finished_request_is_kept_while_extra_pods_depend_on_it() -> None:
    world = World()
    (first,) = gang(world, 2)
    extras(world)
    needed: list[bool] = []

    async def main() -> None:
        binder = Binder(world)

        def is_needed() -> bool:
            return binder.manager.is_needed(finished(*first.each()))

        def note(call: str) -> None:
            if call == "bind":
                needed.append(is_needed())

        binder.door.before_call = note
        binder.list_requests()
        await binder.settle()
        binder.intake.observe(world.requests[NAMESPACE, "gang-0"], adopted=False)
        assert not is_needed()

    play(main())

    assert needed == [True] * 4


def test_a_statement_that_is_its_own_prerequisite_is_refused() -> None:
    world = World()
    gang(world, 1, after="gang")

    async def main() -> None:
        binder = Binder(world)
        binder.list_requests()
        await binder.settle()
        assert [item.name for item in binder.notes.malformed] == ["gang-0"]

    play(main())


@pytest.mark.parametrize("trouble", list(Trouble))
@pytest.mark.parametrize("newest_first", [False, True])
def test_extra_pods_follow_their_gang_despite_one_failure_at_any_call(
    trouble: Trouble, newest_first: bool
) -> None:
    """Exhaustive: the failure occurs at each call in turn, until there are no more calls."""
    for when in range(1000):
        world, script = World(), Script({when: trouble})
        gang(world, 2)
        extras(world, 1)
        if newest_first:
            shown_last_first(world)

        play(carry_through(world, script, plugins=1))

        assert len(bound(world)) == 3, f"{trouble} at call {when}"
        order = [entry[1] for entry in world.log if entry[0] == "bind"]
        assert order[-1] == "uid-extra-0"
        if script.calls <= when:
            return
    raise AssertionError("the calls never end")


SCRIPTS = st.builds(
    Script, st.dictionaries(st.integers(0, 40), st.sampled_from(list(Trouble)), max_size=4)
)


@settings(max_examples=examples(35), deadline=None)
@given(st.data())
def test_extra_pods_are_never_bound_without_their_gang(data: Any) -> None:
    world = World()
    gang(world, 2, parts=data.draw(st.integers(1, 2)), backoff_limit=data.draw(st.integers(0, 2)))
    extras(world, data.draw(st.integers(1, 2)), backoff_limit=1)
    if data.draw(st.booleans()):
        shown_last_first(world)
    who = data.draw(st.sampled_from(["uid-gang-1", "uid-extra-0", "nobody"]))
    refuses = {who: PluginError("no", permanent=data.draw(st.booleans()))}

    play(carry_through(world, data.draw(SCRIPTS), plugins=1, refuses=refuses))

    whole = {"gang-0", "gang-1"} <= bound(world)
    assert whole or not bound(world)
    assert not (whole and who == "uid-gang-1")
    assert all(r.status.phase in (Phase.SUCCEEDED, Phase.FAILED) for r in world.statements())
