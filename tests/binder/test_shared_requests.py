"""Statements that share a request do not affect each other. No API server."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from bindery.binder.outcome.retention import finished
from bindery.binder.plugins.interface import PluginError
from bindery.binder.requestevents import translate
from bindery.kube.objects.bindrequests import (
    BindRequest,
    BindRequestStatus,
    StatementSpec,
    StatementStatus,
)
from tests.binder.binderworld import NAMESPACE, World, share, statement
from tests.binder.fakebinder import Binder, Script, Trouble, carry_through
from tests.binder.quicktime import play


def withdraw_before_the_first_write(world: World, binder: Binder) -> None:
    """Withdraw the Statement `bad` when a status is about to be written for the first time."""
    is_withdrawn = False

    def withdraw(call: str) -> None:
        nonlocal is_withdrawn
        if call == "patch status" and not is_withdrawn:
            is_withdrawn = True
            world.withdraw("shared", "bad")

    binder.door.before_call = withdraw


def new_world() -> World:
    world = World()
    world.keeps_time = True
    return world


def status_of(world: World, name: str, request: str = "shared") -> StatementStatus:
    each = world.requests[NAMESPACE, request].each()
    return next(one.status for one in each if one.key.statement == name)


def ends(world: World) -> dict[str, tuple[str, str]]:
    """Return Statement -> phase and reason."""
    each = [one for stored in world.requests.values() for one in stored.each()]
    return {one.key.statement: (one.status.phase, one.status.reason) for one in each}


def bound(world: World) -> set[str]:
    return {uid.removeprefix("uid-") for uid in world.bound()}


def run_with_slow(
    world: World,
    *pods: str,
    during: Callable[[Binder], Any] = lambda _: None,
    at_s: float = 10.0,
    after: Callable[[Binder], Any] = lambda _: None,
) -> None:
    """Run a binder; call `during` after `at_s` seconds, and `after` when it has come to rest."""

    async def main() -> None:
        binder = Binder(world, slow={f"uid-{pod}": 120.0 for pod in pods})
        binder.watch()
        binder.list_requests()
        await binder.door.pause(at_s)
        during(binder)
        await binder.settle()
        after(binder)

    play(main())


# ---- neighbours ----------------------------------------------------------------------------------


def test_each_statement_has_its_own_outcome() -> None:
    world = new_world()
    share(
        world,
        statement(world, "whole", 3),
        statement(world, "broken", 2),
        statement(world, "single", 2, min_bound=0),
    )
    del world.pods["broken-1"], world.pods["single-0"]

    play(carry_through(world))

    assert ends(world) == {
        "whole": ("Succeeded", "Bound"),
        "broken": ("Failed", "PodGone"),
        "single": ("Succeeded", "PartlyBound"),
    }
    assert bound(world) == {"whole-0", "whole-1", "whole-2", "single-1"}
    assert status_of(world, "single").bound_pods == ["uid-single-1"]
    assert world.requests[NAMESPACE, "shared"].status.phase == "Failed"
    assert world.bound_counts["shared"] == 4
    assert {uid.removeprefix("uid-") for _, uid in world.prepared} == bound(world)


def test_statements_without_failures_cost_one_status_write() -> None:
    world = new_world()
    share(world, *(statement(world, f"gang{n}", 3) for n in range(10)))

    play(carry_through(world))

    assert [entry for entry in world.log if entry[0] == "status"] == [
        ("status", "shared", "Succeeded")
    ]


def test_a_statement_that_waits_for_a_volume_does_not_delay_its_neighbours() -> None:
    world = new_world()
    share(
        world,
        statement(world, "quick", 2),
        statement(world, "slow", 2),
        statement(world, "broken", 1),
        statement(world, "extra", 1, after="quick", min_bound=0),
        statement(world, "later", 1, after="slow", min_bound=0),
    )
    del world.pods["broken-0"]

    def during(_: Binder) -> None:
        assert ends(world) == {
            "quick": ("Succeeded", "Bound"),
            "slow": ("Pending", ""),
            "broken": ("Failed", "PodGone"),
            "extra": ("Succeeded", "Bound"),
            "later": ("Pending", ""),
        }
        assert bound(world) == {"quick-0", "quick-1", "extra-0"}
        assert world.requests[NAMESPACE, "shared"].status.phase == "Binding"

    run_with_slow(world, "slow-1", during=during, at_s=2.0)

    assert ends(world)["later"] == ("Succeeded", "Bound")
    assert world.requests[NAMESPACE, "shared"].status.phase == "Failed"


def test_a_dependent_statement_does_not_wait_for_neighbours_of_its_prerequisite() -> None:
    world = new_world()
    share(world, statement(world, "gang", 1), statement(world, "slow", 1))

    async def main() -> None:
        binder = Binder(world, slow={"uid-slow-0": 120.0})
        binder.watch()
        binder.list_requests()
        await binder.door.pause(0.2)
        assert ends(world)["gang"] == ("Pending", "")  # it is bound, and waits for its neighbour
        share(world, statement(world, "extra", 1, after="gang"), name="extras")
        await binder.door.pause(0.2)
        assert ends(world)["extra"] == ("Succeeded", "Bound")
        await binder.settle()

    play(main())


def test_a_failing_statement_is_retried_without_its_neighbours() -> None:
    world = new_world()
    share(world, statement(world, "good", 2), statement(world, "bad", 2), backoff_limit=3)

    play(carry_through(world, refuses={"uid-bad-1": PluginError("not now")}))

    assert ends(world) == {"good": ("Succeeded", "Bound"), "bad": ("Failed", "PluginFailed")}
    prepared = [entry[1] for entry in world.log if entry[0] == "pre_bind"]
    assert prepared.count("uid-good-0") == 2  # by two plugins
    assert prepared.count("uid-bad-0") == 8
    assert status_of(world, "bad").failed_attempts == 3
    assert status_of(world, "good").failed_attempts == 0


def test_a_pod_in_two_statements_of_a_request_is_bound_once() -> None:
    world = new_world()
    first = statement(world, "first", 2)
    second = msgspec.structs.replace(first, id="second")
    share(world, first, second)

    play(carry_through(world))

    assert len([entry for entry in world.log if entry[0] == "bind"]) == 2
    assert sorted(phase for phase, _ in ends(world).values()) in (
        ["Failed", "Succeeded"],
        ["Succeeded", "Succeeded"],
    )


# ---- malformed -----------------------------------------------------------------------------------


def empty(world: World) -> StatementSpec:
    del world
    return StatementSpec(id="bad", pods=[])


def after_itself(world: World) -> StatementSpec:
    return statement(world, "bad", 1, after="bad")


def twice_a_pod(world: World) -> StatementSpec:
    found = statement(world, "bad", 1)
    return msgspec.structs.replace(found, pods=found.pods * 2)


@pytest.mark.parametrize("bad", [empty, after_itself, twice_a_pod])
def test_a_malformed_statement_fails_and_its_neighbours_are_bound(
    bad: Callable[[World], StatementSpec],
) -> None:
    world = new_world()
    share(world, bad(world), statement(world, "good", 2))

    async def main() -> None:
        binder = Binder(world)
        binder.watch()
        binder.list_requests()
        await binder.settle()
        (refused,) = binder.notes.malformed
        assert refused.statement is not None
        assert refused.statement.key.statement == "bad"

    play(main())

    assert ends(world) == {"bad": ("Failed", "Malformed"), "good": ("Succeeded", "Bound")}
    assert status_of(world, "bad").bound_pods == []
    assert world.bound_counts["shared"] == 2


def doubled(world: World, request: BindRequest) -> BindRequest:
    return world.respecify("shared", statements=[*request.spec.statements] * 2)


def emptied(world: World, request: BindRequest) -> BindRequest:
    del request
    return world.respecify("shared", statements=[])


def with_parts(world: World, request: BindRequest) -> BindRequest:
    first, *rest = request.spec.statements
    return world.respecify("shared", statements=[msgspec.structs.replace(first, parts=2), *rest])


@pytest.mark.parametrize(
    ("spoil", "text"),
    [(doubled, "gang twice"), (emptied, "no Statement"), (with_parts, "comes in parts")],
)
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_an_invalid_request_is_refused_as_a_whole_and_rolled_back(
    spoil: Callable[[World, BindRequest], BindRequest], text: str, when: str
) -> None:
    world = new_world()
    request = share(world, statement(world, "gang", 2), statement(world, "slow", 1))
    other = share(world, statement(world, "other", 1), name="other")
    if when == "before":
        spoil(world, request)

    def during(_: Binder) -> None:
        if when == "meanwhile":
            spoil(world, request)

    def after(binder: Binder) -> None:
        (refused,) = binder.notes.malformed
        assert refused.name == "shared"
        assert refused.statement is None
        assert text in refused.message
        assert binder.manager.run_count == 0
        assert "slow" not in binder.open_statements()

    run_with_slow(world, "slow-0", during=during, after=after)

    assert other.metadata.name == "other"
    assert ends(world)["other"] == ("Succeeded", "Bound")
    expected = {"other-0"} if when == "before" else {"gang-0", "gang-1", "other-0"}
    assert bound(world) == expected
    assert {uid.removeprefix("uid-") for _, uid in world.prepared} == expected


def test_a_request_refused_as_a_whole_is_removed_as_any_other() -> None:
    world = new_world()
    request = share(world, *[statement(world, "gang", 1)] * 2)
    refused = {"phase": "Failed", "reason": "Malformed", "completionTime": "1970-01-01T00:01:00Z"}
    status = msgspec.convert(refused, BindRequestStatus)
    world.store(msgspec.structs.replace(request, status=status))

    def after(binder: Binder) -> None:
        assert binder.notes.malformed == []
        (kept,) = binder.notes.kept
        assert (kept.name, kept.completed_s) == ("shared", 60.0)
        assert not binder.manager.is_needed(kept)

    run_with_slow(world, after=after)


def test_a_request_corrected_before_its_refusal_is_processed() -> None:
    world = new_world()
    share(world, *[statement(world, "gang", 1)] * 2)

    def mend(_: Binder) -> None:
        # The fake has not written that it is refused, as the API server may not take it.
        world.respecify("shared", statements=[statement(world, "gang", 1)])

    run_with_slow(world, during=mend)

    assert ends(world) == {"gang": ("Succeeded", "Bound")}


def test_a_malformed_statement_changed_before_its_refusal_is_refused_again() -> None:
    world = new_world()
    share(world, StatementSpec(id="bad", pods=[]), statement(world, "good", 1))

    async def main() -> None:
        binder = Binder(world)
        binder.watch()
        withdraw_before_the_first_write(world, binder)
        binder.list_requests()
        await binder.settle()

    play(main())

    assert ends(world) == {"bad": ("Failed", "Malformed"), "good": ("Succeeded", "Bound")}


# ---- copies --------------------------------------------------------------------------------------


def test_a_copied_statement_is_refused_only_in_the_later_request() -> None:
    world = new_world()
    mine = statement(world, "gang", 1)
    share(world, mine, statement(world, "slow", 1), name="first")
    share(world, statement(world, "good", 1), name="copy")

    async def main() -> None:
        binder = Binder(world, slow={"uid-gang-0": 120.0})
        binder.watch()
        binder.list_requests()
        await binder.door.pause(1)
        good = world.requests[NAMESPACE, "copy"].spec.statements
        world.respecify("copy", statements=[*good, mine])
        share(world, mine, name="twin")
        await binder.door.pause(1)
        assert status_of(world, "gang", "copy").reason == "Malformed"
        assert status_of(world, "gang", "first").reason == ""
        await binder.settle()
        told = {each.name: each.message for each in binder.notes.malformed}
        assert told == dict.fromkeys(("copy", "twin"), "first carries the same Statement")
        kept = {each.name for each in binder.notes.kept}
        assert kept == {"first", "copy", "twin"}

    play(main())

    assert status_of(world, "gang", "first").phase == "Succeeded"
    assert status_of(world, "good", "copy").phase == "Succeeded"
    assert len([entry for entry in world.log if entry[0] == "bind"]) == 3


def test_a_copied_statement_waits_until_its_original_can_be_read() -> None:
    world = new_world()
    mine = statement(world, "gang", 1)
    share(world, mine, statement(world, "slow", 1), name="first")

    async def main() -> None:
        binder = Binder(world)
        original = world.requests[NAMESPACE, "first"]
        binder.intake.observe(original, adopted=False)
        del world.requests[NAMESPACE, "first"]
        share(world, mine, name="copy")
        binder.door.script = Script(dict.fromkeys(range(8), Trouble.ERROR))
        binder.intake.observe(world.requests[NAMESPACE, "copy"], adopted=False)
        await binder.settle()
        assert binder.notes.malformed == []
        binder.intake.gone(original)
        assert binder.manager.run_count == 0

    play(main())

    assert status_of(world, "gang", "copy").phase == "Succeeded"


# ---- changes of the spec -------------------------------------------------------------------------


def test_a_statement_removed_from_its_request_is_rolled_back() -> None:
    world = new_world()
    request = share(world, statement(world, "gang", 2), statement(world, "slow", 2))

    def remove(_: Binder) -> None:
        world.respecify("shared", statements=request.spec.statements[:1])

    def after(binder: Binder) -> None:
        assert {each.statement_ids for each in binder.notes.kept} >= {("gang",)}
        assert not binder.open_statements()

    run_with_slow(world, "slow-0", during=remove, after=after)

    assert bound(world) == {"gang-0", "gang-1"}
    assert {uid.removeprefix("uid-") for _, uid in world.prepared} == bound(world)


def test_the_deletion_of_a_request_ends_all_its_statements() -> None:
    world = new_world()
    request = share(world, statement(world, "one", 1), statement(world, "two", 1))

    def delete(binder: Binder) -> None:
        del world.requests[NAMESPACE, "shared"]
        binder.intake.gone(request)

    def after(binder: Binder) -> None:
        assert binder.manager.run_count == 0
        assert len(binder.door.shared) == 0
        assert not binder.open_statements()

    run_with_slow(world, "one-0", "two-0", during=delete, after=after)

    assert bound(world) == set()
    assert world.prepared == set()


def test_a_statement_with_a_changed_spec_is_restarted_without_its_neighbour() -> None:
    world = new_world()
    request = share(world, statement(world, "gang", 1), statement(world, "slow", 1))
    world.nodes.add("better")

    def move(_: Binder) -> None:
        gang_, slow = request.spec.statements
        pods = [msgspec.structs.replace(pod, selected_node="better") for pod in slow.pods]
        slow = msgspec.structs.replace(slow, pods=pods)
        world.respecify("shared", statements=[gang_, slow])

    run_with_slow(world, "slow-0", during=move)

    assert world.bound() == {"uid-gang-0": "node-0", "uid-slow-0": "better"}


# ---- withdrawn -----------------------------------------------------------------------------------


def check_withdrawn(world: World, name: str = "bad") -> None:
    """A Statement was withdrawn: nothing of it is left, and its neighbour is bound."""
    status = status_of(world, name)
    assert (status.phase, status.reason) == ("Failed", "Withdrawn")
    assert {pod.reason for pod in status.unbound_pods} == {"Withdrawn"}
    assert bound(world) == {"good-0"}
    assert {uid.removeprefix("uid-") for _, uid in world.prepared} == {"good-0"}
    assert status_of(world, "good").phase == "Succeeded"


def withdraw(world: World, at_s: float, *slow: str, **options: Any) -> None:
    """Withdraw the Statement `bad` at some time; check that it ends soon after."""

    async def main() -> None:
        binder = Binder(world, slow={f"uid-{pod}": 600.0 for pod in slow}, **options)
        binder.watch()
        binder.list_requests()
        await binder.door.pause(at_s)
        request = next(s.metadata.name for s in world.requests.values() if "bad" in ids(s))
        world.withdraw(request, "bad")
        await binder.door.pause(5)
        assert status_of(world, "bad", request).phase in ("Failed", "Succeeded")
        await binder.settle()
        assert binder.manager.run_count == 0
        assert not binder.open_statements()

    play(main())


def ids(request: BindRequest) -> list[str]:
    return [each.id for each in request.spec.statements]


def test_a_statement_withdrawn_before_the_binder_observes_it_is_not_started() -> None:
    world = new_world()
    share(world, statement(world, "bad", 2), statement(world, "good", 1), withdrawn=["bad"])
    play(carry_through(world))
    check_withdrawn(world)
    assert not [entry for entry in world.log if entry[0] == "pre_bind" and "bad" in entry[1]]


def test_a_statement_withdrawn_while_a_plugin_waits_is_rolled_back() -> None:
    world = new_world()
    share(world, statement(world, "bad", 2), statement(world, "good", 1))
    withdraw(world, 30.0, "bad-1")
    check_withdrawn(world)


def test_a_statement_withdrawn_while_it_waits_for_its_prerequisite_fails() -> None:
    world = new_world()
    share(
        world,
        statement(world, "good", 1),
        statement(world, "bad", 1, after="good"),
    )
    withdraw(world, 30.0, "good-0")
    check_withdrawn(world)


def test_a_statement_withdrawn_while_it_waits_for_a_retry_fails() -> None:
    world = new_world()
    share(world, statement(world, "bad", 2), statement(world, "good", 1), backoff_limit=20)
    refuses = {"uid-bad-1": PluginError("no")}
    withdraw(world, 200.0, refuses=refuses)
    check_withdrawn(world)
    assert 5 < status_of(world, "bad").failed_attempts < 10


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("which", [0, 1])
def test_a_withdrawn_statement_fails_whether_or_not_all_its_parts_exist(
    parts: int, which: int
) -> None:
    world = new_world()
    share(world, statement(world, "good", 1))
    for number in range(2):
        part = msgspec.structs.replace(
            statement(world, f"bad-{number}", 1), id="bad", part=number, parts=parts
        )
        share(world, part, name=f"part-{number}")

    async def main() -> None:
        binder = Binder(world, slow={"uid-bad-0-0": 120.0})
        binder.watch()
        binder.list_requests()
        await binder.door.pause(5)
        world.withdraw(f"part-{which}", "bad")
        await binder.settle()
        assert not binder.open_statements()

    play(main())

    assert bound(world) == {"good-0"}
    for number in range(2):
        status = status_of(world, "bad", f"part-{number}")
        assert (status.phase, status.reason) == ("Failed", "Withdrawn")
    assert {uid for _, uid in world.prepared} == {"uid-good-0"}


def test_a_part_created_after_the_withdrawal_of_its_statement_fails() -> None:
    world = new_world()
    share(world, statement(world, "good", 1))
    parts = [
        msgspec.structs.replace(statement(world, f"bad-{n}", 1), id="bad", part=n, parts=2)
        for n in range(2)
    ]
    share(world, parts[0], name="part-0", withdrawn=["bad"])

    async def main() -> None:
        binder = Binder(world)
        binder.watch()
        binder.list_requests()
        await binder.settle()
        assert status_of(world, "bad", "part-0").phase == "Failed"
        share(world, parts[1], name="part-1")
        await binder.settle()

    play(main())

    assert status_of(world, "bad", "part-1").phase == "Failed"
    assert bound(world) == {"good-0"}


def test_a_gang_withdrawn_after_a_pod_was_bound_is_bound_whole() -> None:
    world = new_world()
    share(world, statement(world, "bad", 3), statement(world, "good", 1))

    async def main() -> None:
        binder = Binder(world)
        binder.watch()
        withdrawn = False

        def before(call: str) -> None:
            nonlocal withdrawn
            if not withdrawn and "uid-bad-0" in world.bound() and call == "bind":
                withdrawn = True
                world.withdraw("shared", "bad")

        binder.door.before_call = before
        binder.list_requests()
        await binder.settle()
        assert withdrawn

    play(main())

    assert ends(world) == {"bad": ("Succeeded", "Bound"), "good": ("Succeeded", "Bound")}


@pytest.mark.parametrize("refuses", [{}, {"uid-bad-0": PluginError("no", permanent=True)}])
@pytest.mark.parametrize("lag_s", [0.0, 3.0])
def test_a_statement_withdrawn_during_the_write_of_its_outcome_has_an_outcome(
    refuses: dict[str, PluginError], lag_s: float
) -> None:
    """The write conflicts with the withdrawal, and no other task writes the outcome."""
    world = new_world()
    share(world, statement(world, "bad", 1))

    async def main() -> None:
        binder = Binder(world, refuses=refuses)
        binder.watch(lag_s)
        withdraw_before_the_first_write(world, binder)
        binder.list_requests()
        await binder.settle()
        assert not binder.open_statements()

    play(main())

    phase, reason = ends(world)["bad"]
    assert (phase, reason) == (("Failed", "Withdrawn") if refuses else ("Succeeded", "Bound"))


def test_a_withdrawal_after_the_end_changes_nothing() -> None:
    world = new_world()
    share(world, statement(world, "bad", 1), statement(world, "slow", 1))
    withdraw(world, 30.0, "slow-0")
    assert ends(world)["bad"] == ("Succeeded", "Bound")


# ---- retention and the watch ---------------------------------------------------------------------


def test_a_request_is_kept_until_all_its_statements_have_ended() -> None:
    world = new_world()
    share(world, statement(world, "quick", 1), statement(world, "slow", 1))

    def during(binder: Binder) -> None:
        (quick, _) = world.requests[NAMESPACE, "shared"].each()
        assert quick.is_final
        assert binder.manager.is_needed(finished(quick))

    def after(binder: Binder) -> None:
        assert not binder.manager.is_needed(binder.notes.kept[-1])

    run_with_slow(world, "slow-0", during=during, after=after)


def test_events_decoded_by_the_operator_reach_each_statement() -> None:
    world = new_world()
    stored = share(world, statement(world, "one", 1), statement(world, "two", 2))
    raw = msgspec.to_builtins(stored)

    async def main() -> None:
        binder = Binder(world)
        binder.watch()
        translate("ADDED", raw, binder.intake)
        await binder.settle()
        translate("DELETED", raw, binder.intake)
        assert len(binder.door.shared) == 0

    play(main())

    assert bound(world) == {"one-0", "two-0", "two-1"}
