"""Eviction of the rest of a gang: not while replacements for its lost pods are expected."""

import pytest
from msgspec.structs import replace

from bindery.kube.objects.bindrequests import StatementStatus, UnboundPod
from bindery.kube.objects.podgroups import SubGroup
from bindery.kube.objects.watched import OwnerReference, Pod
from bindery.scheduler.engine import Engine
from tests.scheduler.schedulerworld import (
    NOW,
    Clock,
    add,
    as_created,
    delete,
    engine_with,
    group,
    modify,
    node,
    plan,
    pod,
    report_of,
)

GRACE_S = 60.0
LEFT = {"g-0", "g-1"}


def member(number: int, owner: str = "Job", **fields: object) -> Pod:
    made = pod(f"g-{number}", group="g", **{"on": "n", **fields})  # type: ignore[arg-type]  # as `pod` has them
    references = [OwnerReference(kind=owner, name="o", uid="o", controller=True)] if owner else []
    return replace(made, metadata=replace(made.metadata, owner_references=references))


def evicted(engine: Engine) -> set[str]:
    plan(engine)
    return {eviction.task.name for eviction in engine.report.evictions}


def gang_of(size: int, clock: Clock, owner: str = "Job") -> Engine:
    """Return an engine with a gang of which all `size` pods are needed and run."""
    members = [member(number, owner) for number in range(size)]
    engine = engine_with(node("n"), group("g", size), *members, clock=clock)
    assert evicted(engine) == set()
    return engine


def lose(engine: Engine, *numbers: int, owner: str = "Job") -> None:
    delete(engine.cluster, *(member(number, owner) for number in numbers))
    assert evicted(engine) == set()


@pytest.mark.parametrize(("lost", "backoff_s"), [(1, 10.0), (3, 40.0), (6, 320.0)])
def test_the_rest_of_a_gang_waits_for_pods_that_the_job_controller_creates_later(
    lost: int, backoff_s: float
) -> None:
    clock = Clock()
    engine = gang_of(2 + lost, clock)
    lose(engine, *range(2, 2 + lost))

    clock.now += backoff_s + GRACE_S
    assert evicted(engine) == set()
    clock.now += 1
    assert evicted(engine) == LEFT


@pytest.mark.parametrize("owner", ["", "ReplicaSet"])
def test_the_rest_of_a_gang_does_not_wait_for_pods_that_are_not_recreated(owner: str) -> None:
    clock = Clock()
    engine = gang_of(3, clock, owner)
    lose(engine, 2, owner=owner)

    clock.now += GRACE_S + 1
    assert evicted(engine) == LEFT


def test_created_replacements_get_the_grace_period_to_be_placed() -> None:
    clock = Clock()
    engine = gang_of(3, clock)
    lose(engine, 2)
    clock.now += 65.0
    came = "2025-06-15T15:07:45Z"
    late = member(3, on="", cpu=64)
    add(engine.cluster, replace(late, metadata=replace(late.metadata, creation_timestamp=came)))

    clock.now += 50.0
    assert evicted(engine) == set()
    clock.now += 11.0
    assert evicted(engine) == LEFT


def test_terminating_pods_extend_the_grace_period_but_not_without_end() -> None:
    clock = Clock()
    engine = gang_of(3, clock)
    leaving = "2025-06-15T16:06:40Z"
    modify(engine.cluster, member(2, deleting=leaving))
    assert evicted(engine) == set()

    clock.now += 9 * GRACE_S
    assert evicted(engine) == set()
    assert "if no replacements come" in report_of(engine, "g").message
    clock.now += 2 * GRACE_S
    assert evicted(engine) == set()
    clock.now += 1
    assert evicted(engine) == LEFT


def test_the_announcement_of_an_eviction_changes_once_its_time_has_passed() -> None:
    clock = Clock()
    engine = gang_of(3, clock, owner="")
    lose(engine, 2, owner="")
    text = "fewer of its pods run than it needs: it is evicted after 2025-06-15T15:07:40Z"
    assert text in report_of(engine, "g").message

    clock.now = NOW + GRACE_S + 1
    assert evicted(engine) == LEFT
    said = report_of(engine, "g").message
    assert text not in said
    assert "it is evicted, because its grace period ended at 2025-06-15T15:07:40Z" in said


@pytest.mark.parametrize("sub_group", ["", "worker"])
def test_the_bound_part_of_a_gang_is_evicted_if_its_last_pod_never_gets_a_place(
    sub_group: str,
) -> None:
    clock, nodes = Clock(), [node(f"n{number}", cpu=1) for number in range(3)]
    gang = group("g", 3)
    if sub_group:
        parts = [SubGroup(name=sub_group, min_member=3)]
        gang = group("g", 0, min_sub_group=0, sub_groups=parts)
    pods = [pod(f"g-{number}", group="g", sub_group=sub_group) for number in range(3)]
    engine = engine_with(*nodes, gang, *pods, clock=clock)
    (draft,) = engine.cycle()
    statement = as_created(draft)
    add(engine.cluster, statement)
    assert evicted(engine) == set()  # all are Binding

    places = {each.pod_name: each.selected_node for each in draft.spec.pods}
    delete(engine.cluster, node(places["g-2"], cpu=1))
    for name in sorted(LEFT):
        modify(engine.cluster, pod(name, group="g", sub_group=sub_group, on=places[name]))
    unbound = [UnboundPod(pod_name="g-2", pod_uid="uid-g-2", node=places["g-2"], reason="NodeGone")]
    ended = StatementStatus(
        id=statement.spec.id,
        phase="Failed",
        completion_time="2025-06-15T15:06:40Z",
        unbound_pods=unbound,
    )
    modify(engine.cluster, replace(statement, status=ended))
    assert evicted(engine) == set()

    clock.now += GRACE_S + 1
    assert evicted(engine) == LEFT
