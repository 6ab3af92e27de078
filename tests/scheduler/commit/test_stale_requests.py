"""Requests that no binder will finish are deleted, and no others."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.api.names import ROLL_BACK_FINALIZER
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.watched import KubeObject, Meta, Namespace
from bindery.scheduler.cache.holds import LINGER_S
from bindery.scheduler.commit.stale import stale_requests
from tests.scheduler.schedulerworld import (
    NAMESPACE,
    NOW,
    Clock,
    add,
    delete,
    engine_with,
    gang,
    group,
    node,
    plan,
    pod,
    request,
    shared_request,
)
from tests.sizes import examples

TIMEOUT_S = 600.0
NEW = "2025-06-15T15:06:38Z"
MINUTE_OLD = "2025-06-15T15:05:40Z"
HOUR_OLD = "2025-06-15T14:06:40Z"
TWO = {"uid-a": "n", "uid-b": "m"}
BOTH = [node("n"), node("m"), pod("a"), pod("b")]


def reasons(*items: KubeObject) -> list[str]:
    cluster = engine_with(*items).cluster
    return [stale.reason for stale in stale_requests(cluster, NOW, TIMEOUT_S)]


CASES: dict[str, tuple[list[KubeObject], CommittedStatement, list[str]]] = {
    "young and possible": (BOTH, request("r", TWO, created=MINUTE_OLD), []),
    "one pod of a gang is gone": (
        [node("n"), node("m"), pod("a")], request("r", TWO, created=MINUTE_OLD), ["PodsGone"],
    ),
    "one node of a gang is gone": (
        [node("n"), pod("a"), pod("b")], request("r", TWO, created=MINUTE_OLD), ["NodesGone"],
    ),
    "one of pods that stand alone is gone": (
        [node("n"), node("m"), pod("a")], request("r", TWO, created=MINUTE_OLD, min_bound=0), [],
    ),
    "all pods that stand alone are gone": (
        [node("n"), node("m")], request("r", TWO, created=MINUTE_OLD, min_bound=0), ["PodsGone"],
    ),
    "one node of pods that stand alone is gone": (
        [node("n"), pod("a"), pod("b")], request("r", TWO, created=MINUTE_OLD, min_bound=0), [],
    ),
    "another pod of the same name exists": (
        [node("n"), pod("a", uid="second")],
        request("r", {"uid-a": "n"}, created=MINUTE_OLD),
        ["PodsGone"],
    ),
    "too new for watches to agree": ([], request("r", TWO, created=NEW), []),
    "without an outcome for too long": (BOTH, request("r", TWO, created=HOUR_OLD), ["TimedOut"]),
    "being bound for too long": (
        BOTH, request("r", TWO, created=HOUR_OLD, phase="Binding"), ["TimedOut"],
    ),
    "succeeded long ago": (
        BOTH, request("r", TWO, created=HOUR_OLD, phase="Succeeded", bound=list(TWO)), [],
    ),
    "failed, and a pod of it waits": (
        BOTH, request("r", TWO, created=HOUR_OLD, phase="Failed"), [],
    ),
    "failed, and its pods are gone": (
        [], request("r", TWO, created=HOUR_OLD, phase="Failed"), ["Superseded"],
    ),
    "a part that has lacked the other part for a short time": (
        BOTH, request("r", TWO, created=NEW, parts=2), [],
    ),
    "a part that has been alone for a minute": (
        BOTH, request("r", TWO, created=MINUTE_OLD, parts=2), ["Incomplete"],
    ),
}  # fmt: skip


def deleted(at: str) -> CommittedStatement:
    """Return a request that was deleted and stays until a binder has rolled back."""
    found = request("r", TWO, created=HOUR_OLD)
    meta = msgspec.structs.replace(
        found.metadata, deletion_timestamp=at, finalizers=[ROLL_BACK_FINALIZER]
    )
    return msgspec.structs.replace(found, metadata=meta)


@pytest.mark.parametrize(
    ("deleted_at", "is_ending", "expected"),
    [
        (MINUTE_OLD, False, []),
        (MINUTE_OLD, True, []),
        (HOUR_OLD, False, []),
        (HOUR_OLD, True, ["Forsaken"]),
    ],
)
def test_a_deleted_request_is_released_without_a_binder_only_where_a_namespace_waits(
    deleted_at: str, is_ending: bool, expected: list[str]
) -> None:
    meta = Meta(name=NAMESPACE, deletion_timestamp=deleted_at if is_ending else None)

    assert reasons(*BOTH, Namespace(metadata=meta), deleted(deleted_at)) == expected


def test_the_pods_of_a_deleted_request_are_not_planned_before_it_is_gone() -> None:
    found = deleted(MINUTE_OLD)
    clock = Clock()
    engine = engine_with(*BOTH, found, clock=clock)
    assert not list(engine.cycle())

    delete(engine.cluster, found)
    assert not list(engine.cycle()), "its binder may still bind them"
    clock.now += LINGER_S

    assert list(engine.cycle())


@pytest.mark.parametrize("case", CASES)
def test_a_request_is_deleted_only_if_no_binder_will_finish_it(case: str) -> None:
    items, found, expected = CASES[case]

    assert reasons(*items, found) == expected


def test_a_failed_request_is_deleted_once_its_pods_are_planned_again() -> None:
    engine = engine_with(*BOTH, request("r", TWO, created=MINUTE_OLD, phase="Failed"))
    assert not list(stale_requests(engine.cluster, NOW, TIMEOUT_S))

    assert set(plan(engine)) == {"a", "b"}

    assert [s.reason for s in stale_requests(engine.cluster, NOW, TIMEOUT_S)] == ["Superseded"]


def test_a_statement_that_is_being_written_is_not_incomplete() -> None:
    part = request("r", TWO, created=MINUTE_OLD, parts=2)
    engine = engine_with(*BOTH, part, *gang("g", 1))
    drafts = list(engine.cycle())
    assert drafts
    assert not list(stale_requests(engine.cluster, NOW, TIMEOUT_S))

    for draft in drafts:
        engine.refused(draft)

    assert [s.reason for s in stale_requests(engine.cluster, NOW, TIMEOUT_S)] == ["Incomplete"]


def test_a_statement_with_all_its_parts_is_complete() -> None:
    engine = engine_with(*BOTH)
    for part, places in enumerate(({"uid-a": "n"}, {"uid-b": "m"})):
        item = request("r", places, created=MINUTE_OLD, part=part, parts=2)
        name = f"r-p{part}"
        meta = type(item.metadata)(
            name=name, namespace="team", uid=name, creation_timestamp=MINUTE_OLD
        )
        add(engine.cluster, CommittedStatement(metadata=meta, spec=item.spec, status=item.status))

    assert not list(stale_requests(engine.cluster, NOW, TIMEOUT_S))


def test_requests_of_another_node_pool_are_not_deleted() -> None:
    label = {"scheduling.bindery.dev/node-pool": "other"}

    assert reasons(request("r", TWO, created=HOUR_OLD, labels=label)) == []


# ---- Statements that share a request -------------------------------------------------------------


def statement(name: str, **fields: Any) -> CommittedStatement:
    """Return a Statement of the gang `name`, which has one pod of that name on node `n`."""
    uid = f"uid-{name}"
    if fields.get("phase") == "Succeeded":
        fields["bound"] = [uid]
    return request(name, {uid: "n"}, group_name=name, **fields)


def of_gang(name: str, *, on: str = "") -> list[KubeObject]:
    return [group(name, 1), pod(name, group=name, on=on)]


def removals(
    *statements: CommittedStatement,
    world: list[KubeObject],
    created: str = MINUTE_OLD,
    others: tuple[CommittedStatement, ...] = (),
    withdrawn: tuple[str, ...] = (),
) -> list[str]:
    """Return what is removed: `delete` for the request, the id for a Statement, and the reason."""
    stored = shared_request("shared", *statements, created=created, withdrawn=withdrawn)
    cluster = engine_with(node("n"), *world, stored, *others).cluster
    return [
        f"{stale.statement.key.statement if stale.has_neighbours else 'delete'} {stale.reason}"
        for stale in stale_requests(cluster, NOW, TIMEOUT_S)
    ]


A, B = of_gang("a"), of_gang("b")
BOUND_B = of_gang("b", on="n")
SHARED: dict[str, tuple[list[CommittedStatement], list[KubeObject], list[str]]] = {
    "all are possible": ([statement("a"), statement("b")], [*A, *B], []),
    "a deleted PodGroup ends its own Statement": (
        [statement("a"), statement("b")], [A[1], *B], ["a-1 GroupGone"],
    ),
    "a PodGroup with its name is another one": (
        [statement("a"), statement("b")],
        [group("a", 1, uid="second"), A[1], *B],
        ["a-1 GroupGone"],
    ),
    "pods that are gone end their own Statement": (
        [statement("a"), statement("b")], [A[0], *B], ["a-1 PodsGone"],
    ),
    "a Statement that is bound in part is withdrawn too": (
        [statement("a", phase="Binding"), statement("b")], [A[1], *B], ["a-1 GroupGone"],
    ),
    "all PodGroups are gone": (
        [statement("a"), statement("b")], [A[1], B[1]], ["delete GroupGone"],
    ),
    "the neighbour has succeeded": (
        [statement("a"), statement("b", phase="Succeeded")],
        [A[1], *BOUND_B],
        ["delete GroupGone"],
    ),
    "the neighbour has failed and waits": (
        [statement("a"), statement("b", phase="Failed")], [A[1], *B], ["delete GroupGone"],
    ),
    "a neighbour builds on the one that has succeeded": (
        [statement("a"), statement("b", phase="Succeeded"), statement("c", after="b-1")],
        [A[1], *BOUND_B, *of_gang("c")],
        ["a-1 GroupGone"],
    ),
    "all are too late": (
        [statement("a", created=HOUR_OLD), statement("b")], [*A, *B], ["delete TimedOut"],
    ),
    "one has failed and its pods are gone, the other is possible": (
        [statement("a", phase="Failed"), statement("b")], [A[0], *B], [],
    ),
    "one has failed and its pods are gone, the other has succeeded": (
        [statement("a", phase="Failed"), statement("b", phase="Succeeded")], [A[0], *BOUND_B], [],
    ),
    "one has failed and its pods are gone, the other waits to be planned again": (
        [statement("a", phase="Failed"), statement("b", phase="Failed")], [A[0], *B], [],
    ),
    "all have failed and their pods are gone": (
        [statement("a", phase="Failed"), statement("b", phase="Failed")],
        [A[0], B[0]],
        ["delete Superseded"],
    ),
    "a PodGroup that is gone after its Statement has ended": (
        [statement("a", phase="Succeeded"), statement("b")], [A[1], *B], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SHARED)
def test_a_statement_is_withdrawn_while_others_of_its_request_are_needed(case: str) -> None:
    statements, world, expected = SHARED[case]
    created = HOUR_OLD if "late" in case else MINUTE_OLD

    assert removals(*statements, world=world, created=created) == expected


def test_a_statement_is_withdrawn_once() -> None:
    statements = [statement("a"), statement("b")]

    assert removals(*statements, world=[A[1], *B], withdrawn=("a-1",)) == []


def test_a_request_is_deleted_when_only_a_withdrawn_statement_remains() -> None:
    statements = [statement("a"), statement("b", phase="Succeeded")]
    world = [A[1], *BOUND_B]

    assert removals(*statements, world=world, withdrawn=("a-1",)) == ["delete GroupGone"]


def test_the_outcome_of_a_prerequisite_is_kept_for_a_statement_in_another_request() -> None:
    statements = [statement("a"), statement("b", phase="Succeeded")]
    follower = statement("c", after="b-1", created=MINUTE_OLD)

    found = removals(*statements, world=[A[1], *BOUND_B, *of_gang("c")], others=(follower,))

    assert found == ["a-1 GroupGone"]


def test_a_request_with_one_statement_is_left_to_the_garbage_collector() -> None:
    assert removals(statement("a"), world=[A[1]]) == []


def test_a_part_of_a_split_statement_is_deleted_and_not_withdrawn() -> None:
    parts = [
        request(f"r-p{part}", {f"uid-{name}": "n"}, created=MINUTE_OLD, part=part, parts=2)
        for part, name in enumerate("ab")
    ]
    items = [
        CommittedStatement(
            metadata=each.metadata,
            spec=msgspec.structs.replace(each.spec, id="r-1", part=part, parts=2),
            siblings=("r-1",),
        )
        for part, each in enumerate(parts)
    ]
    cluster = engine_with(node("n"), pod("a"), *items).cluster

    found = list(stale_requests(cluster, NOW, TIMEOUT_S))

    assert [(s.statement.metadata.name, s.reason, s.has_neighbours) for s in found] == [
        ("r-p1", "PodsGone", False)
    ]


CONDITIONS = ("fine", "group gone", "pod gone", "Succeeded", "Failed", "superseded", "withdrawn")


@given(st.lists(st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=4), max_size=4))
@settings(max_examples=examples(35), deadline=None)
def test_no_statement_is_lost_with_others_and_none_holds_room_for_ever(
    requests: list[list[str]],
) -> None:
    cluster = engine_with(node("n")).cluster
    state_of: dict[str, str] = {}
    for index, conditions in enumerate(requests):
        statements, withdrawn = [], []
        for number, condition in enumerate(conditions):
            name = f"s{index}{number}"
            state_of[f"{name}-1"] = condition
            gone = condition in ("group gone", "withdrawn")
            if not gone:
                add(cluster, group(name, 1))
            if condition not in ("pod gone", "superseded"):
                add(cluster, pod(name, group=name, on="n" if condition == "Succeeded" else ""))
            if condition == "withdrawn":
                withdrawn.append(f"{name}-1")
            phase = {"Succeeded": "Succeeded", "Failed": "Failed", "superseded": "Failed"}
            statements.append(statement(name, phase=phase.get(condition, "Pending")))
        stored = shared_request(f"r{index}", *statements, created=MINUTE_OLD, withdrawn=withdrawn)
        add(cluster, stored)

    found = list(stale_requests(cluster, NOW, TIMEOUT_S))

    deleted = [each.statement for each in found if not each.has_neighbours]
    assert len({each.metadata.name for each in deleted}) == len(deleted)
    lost = {sibling for each in deleted for sibling in each.siblings}
    assert all(state_of[each] != "fine" for each in lost)
    ended = lost | {each.statement.key.statement for each in found}
    for identity, condition in state_of.items():
        if condition == "pod gone":
            assert identity in ended
        if condition == "group gone":
            alone = len(requests[int(identity[1])]) == 1  # left to the garbage collector
            assert (identity in ended) != alone
