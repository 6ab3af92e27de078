"""The manager of requests: parts, retries, changes, refusals. No API server."""

import msgspec
import pytest

from bindery.binder.plugins.interface import PluginError
from bindery.binder.requestevents import translate
from bindery.binder.statements.manager import Malformed
from bindery.kube.objects.bindrequests import StatementSpec, UnboundPod
from tests.binder.binderworld import NAMESPACE, FakePod, World, gang
from tests.binder.fakebinder import Binder, Script, Trouble
from tests.binder.quicktime import play


def status_writes(world: World) -> list[tuple[str, str]]:
    return [(entry[1], entry[2]) for entry in world.log if entry[0] == "status"]


def status_of(world: World, name: str) -> str:
    return world.only(name).status.phase


def test_a_gang_without_failures_costs_one_status_write() -> None:
    world = World()
    gang(world, 8)

    async def main() -> None:
        binder = Binder(world)
        binder.list_requests()
        await binder.settle()

    play(main())

    assert status_writes(world) == [("gang-0", "Succeeded")]


def test_plugins_are_rolled_back_in_reverse_order() -> None:
    world = World()
    gang(world, 2, backoff_limit=0)

    async def main() -> None:
        binder = Binder(world, refuses={"uid-gang-1": PluginError("no")})
        binder.list_requests()
        await binder.settle()

    play(main())

    undone = [entry[1:] for entry in world.log if entry[0] == "rollback"]
    assert undone == [
        ("uid-gang-1", "claims-1"),
        ("uid-gang-1", "claims-0"),
        ("uid-gang-0", "claims-1"),
        ("uid-gang-0", "claims-0"),
    ]
    assert world.prepared == set()


def test_attempts_are_two_to_the_n_seconds_apart_and_end_at_the_limit() -> None:
    world = World()
    gang(world, 1, backoff_limit=4)
    start = world.now

    times: set[float] = set()

    async def main() -> None:
        binder = Binder(world, refuses={"uid-gang-0": PluginError("not yet")})
        binder.door.before_call = lambda _call: times.add(world.now - start)
        binder.list_requests()
        await binder.settle()
        assert [outcome.reason for outcome in binder.notes.failed] == ["PluginFailed"] * 4

    play(main())

    assert sorted(times) == [0, 1, 3, 7, 15]
    request = world.only("gang-0")
    assert request.status.phase == "Failed"
    assert request.status.failed_attempts == 4
    assert request.status.unbound_pods[0].message == "claims-0: not yet"


def test_a_permanent_refusal_of_a_plugin_is_not_retried() -> None:
    world = World()
    gang(world, 3)

    async def main() -> None:
        error = PluginError("never", reason="NoSuchDevice", permanent=True)
        binder = Binder(world, refuses={"uid-gang-1": error})
        binder.list_requests()
        await binder.settle()
        assert not binder.notes.failed

    play(main())

    status = world.only("gang-0").status
    assert (status.phase, status.reason) == ("Failed", "NoSuchDevice")
    reasons = {pod.pod_name: pod.reason for pod in status.unbound_pods}
    assert reasons == {
        "gang-0": "GangAborted",
        "gang-1": "NoSuchDevice",
        "gang-2": "GangAborted",
    }


def test_only_the_failed_independent_pods_are_retried() -> None:
    world = World()
    gang(world, 3, min_bound=0)
    refuses = {"uid-gang-1": PluginError("not yet")}

    async def main() -> None:
        binder = Binder(world, refuses=refuses)
        binder.door.before_call = lambda _: refuses.clear() if world.now > 1_000_002 else None
        binder.list_requests()
        await binder.settle()

    play(main())

    assert status_of(world, "gang-0") == "Succeeded"
    prepared = [entry[1] for entry in world.log if entry[0] == "pre_bind"]
    assert prepared.count("uid-gang-0") == 2
    assert len(world.bound()) == 3


def test_a_part_fails_if_another_part_failed_permanently() -> None:
    """A binder died between the status writes of two parts."""
    world = World()
    first, _ = gang(world, 4, parts=2)
    unbound = [
        UnboundPod(
            pod_name=pod.pod_name,
            pod_uid=pod.pod_uid,
            node=pod.selected_node,
            reason="PluginFailed",
            message="it was so",
        )
        for pod in first.spec.statements[0].pods
    ]
    outcome = {"phase": "Failed", "reason": "PluginFailed", "message": "it was so"}
    world.end("gang-0", **outcome, unboundPods=msgspec.to_builtins(unbound))

    async def main() -> None:
        binder = Binder(world)
        binder.list_requests()
        await binder.settle()

    play(main())

    assert world.bound() == {}
    status = world.only("gang-1").status
    assert (status.phase, status.reason, status.message) == ("Failed", "PluginFailed", "it was so")
    assert status_writes(world) == [("gang-1", "Failed")]


def test_a_part_is_bound_if_another_part_succeeded() -> None:
    world = World()
    gang(world, 2, parts=2)
    world.pods["gang-0"].node = "node-0"
    world.end("gang-0", phase="Succeeded")
    world.requests = dict(reversed(world.requests.items()))

    async def main() -> None:
        binder = Binder(world)
        binder.list_requests()
        await binder.settle()

    play(main())

    assert set(world.bound()) == {"uid-gang-0", "uid-gang-1"}
    assert status_of(world, "gang-1") == "Succeeded"


def test_a_statement_fails_as_a_whole_if_a_part_is_deleted() -> None:
    world = World()
    gang(world, 2, parts=2)

    async def main() -> None:
        binder = Binder(world)

        def delete_part(call: str) -> None:
            if call == "pre_bind":
                gone = world.requests.pop((NAMESPACE, "gang-1"), None)
                if gone is not None:
                    binder.intake.gone(gone)

        binder.door.before_call = delete_part
        binder.list_requests()
        await binder.settle()

    play(main())

    assert world.bound() == {}
    assert world.prepared == set()
    assert world.only("gang-0").status.reason == "PartGone"


def test_a_request_deleted_right_after_its_creation_leaves_nothing() -> None:
    world = World()
    (request,) = gang(world, 2)

    async def main() -> None:
        binder = Binder(world)
        binder.intake.observe(request, adopted=False)
        del world.requests[NAMESPACE, "gang-0"]
        binder.intake.gone(request)
        await binder.settle()
        assert binder.manager.run_count == 0

    play(main())

    assert world.bound() == {}


def test_a_possibly_bound_pod_is_not_rolled_back_when_its_request_is_deleted() -> None:
    world = World()
    gang(world, 1)

    async def main() -> None:
        # The look at the pod after the binding that was cut off fails once.
        binder = Binder(world, Script({6: Trouble.ERROR}), plugins=1)

        def delete(call: str) -> None:
            gone = world.requests.pop((NAMESPACE, "gang-0"), None) if call == "bind" else None
            if gone is not None:
                binder.intake.gone(gone)

        binder.door.before_call = delete
        binder.list_requests()
        await binder.settle()
        assert binder.door.calls[5:] == ["bind", "read pod", "read pod"]

    play(main())

    assert set(world.bound()) == {"uid-gang-0"}
    assert world.prepared == {("claims-0", "uid-gang-0")}


def test_a_successor_observed_before_its_predecessors_end_is_not_refused() -> None:
    """kopf keeps no order between the events of two requests."""
    world = World()
    (old,) = gang(world, 2)
    new = msgspec.structs.replace(
        old, metadata=msgspec.structs.replace(old.metadata, name="new", uid="br-new")
    )

    async def main() -> None:
        binder = Binder(world)
        binder.intake.observe(old, adopted=False)
        del world.requests[NAMESPACE, "gang-0"]
        binder.intake.observe(world.store(new), adopted=False)
        await binder.settle()
        binder.intake.gone(old)

    play(main())

    assert status_of(world, "new") == "Succeeded"


def test_only_one_of_two_requests_for_the_same_part_is_effective() -> None:
    world = World()
    first, _ = gang(world, 2, parts=2)
    twin = msgspec.structs.replace(
        first, metadata=msgspec.structs.replace(first.metadata, name="twin", uid="br-twin")
    )
    del world.requests[NAMESPACE, "gang-1"]

    found: list[Malformed] = []

    async def main() -> None:
        binder = Binder(world)
        binder.list_requests()
        binder.intake.observe(twin, adopted=False)
        await binder.settle()
        found.extend(binder.notes.malformed)

    play(main())

    assert [item.name for item in found] == ["twin"]
    assert "gang-0 carries the same part" in found[0].message


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"podName": "a"}, "no Statement"),
        ({"pods": [{"podName": "a"}], "statement": {"id": "x"}}, "no Statement"),
        ({"fencingToken": 3}, "no Statement"),
        (None, "object"),
        ({"statements": [{"id": "x", "parts": "two", "pods": []}]}, "int"),
    ],
)
def test_a_request_of_an_older_definition_is_reported_once_and_stops_nothing(
    spec: dict[str, object] | None, text: str
) -> None:
    world = World()
    raw = {"metadata": {"name": "old", "uid": "u"}, "spec": spec}
    gang(world, 1)
    found: list[Malformed] = []

    async def main() -> None:
        binder = Binder(world)
        translate("ADDED", raw, binder.intake)
        translate("MODIFIED", raw, binder.intake)
        binder.list_requests()
        await binder.settle()
        found.extend(binder.notes.malformed)

    play(main())

    assert [item.name for item in found] == ["old"]
    assert text in found[0].message
    assert status_of(world, "gang-0") == "Succeeded"


def test_a_failed_malformed_request_is_not_reported_at_the_next_start() -> None:
    async def main() -> None:
        binder = Binder(World())
        raw = {"metadata": {"name": "old", "uid": "u"}, "spec": {}, "status": {"phase": "Failed"}}
        translate(None, raw, binder.intake)
        await binder.settle()
        assert binder.notes.malformed == []

    play(main())


def test_a_changed_request_is_processed_in_its_current_form() -> None:
    world = World()
    (request,) = gang(world, 1)
    world.nodes.add("better")

    async def main() -> None:
        binder = Binder(world)

        def change(call: str) -> None:
            if call == "pre_bind" and world.requests[NAMESPACE, "gang-0"] is request:
                changed = world.respecify("gang-0", statements=[moved(request.spec.statements[0])])
                binder.intake.observe(changed, adopted=False)

        binder.door.before_call = change
        binder.list_requests()
        await binder.settle()

    play(main())

    assert world.bound() == {"uid-gang-0": "better"}
    assert status_of(world, "gang-0") == "Succeeded"


def moved(statement: StatementSpec) -> StatementSpec:
    pods = [msgspec.structs.replace(pod, selected_node="better") for pod in statement.pods]
    return msgspec.structs.replace(statement, pods=pods)


def test_a_pod_bound_despite_a_lost_answer_is_not_bound_again() -> None:
    world = World()
    gang(world, 1)

    async def main() -> None:
        # Without plugins: look at the pod, look at the node, bind.
        binder = Binder(world, Script({2: Trouble.LOST_AFTER}), plugins=0)
        binder.list_requests()
        await binder.settle()
        assert binder.door.calls == ["read pod", "read node", "bind", "read pod", "patch status"]

    play(main())

    assert status_of(world, "gang-0") == "Succeeded"


def test_a_finished_request_is_kept_with_its_completion_time() -> None:
    world = World()
    gang(world, 1)
    world.pods["gang-0"] = FakePod("uid-gang-0", node="node-0")

    async def main() -> None:
        binder = Binder(world)
        binder.list_requests()
        await binder.settle()
        binder.intake.observe(world.requests[NAMESPACE, "gang-0"], adopted=False)
        assert [kept.completed_s for kept in binder.notes.kept] == [world.now]

    play(main())
