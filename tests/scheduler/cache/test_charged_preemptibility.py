"""A bound pod keeps its preemptibility; later changes by its owner need the quota."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bindery.api.names import CHARGED_PREEMPTIBILITY_ANNOTATION
from bindery.kube.objects import watched as kube
from bindery.kube.objects.queues import NamespaceRule, Queue, QueueResource, QueueSpec
from bindery.scheduler.engine import Engine
from bindery.scheduler.status.charge_records import charges
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import (
    NAMESPACE,
    add,
    as_created,
    delete,
    engine_with,
    gang,
    group,
    modify,
    node,
    plan,
    pod,
    queue,
)

BIG = node("n", cpu=16)
HIGH = kube.PriorityClass(metadata=kube.Meta(name="high", uid="uid-high"), value=1000)
SMALL = queue("small", quotas={"cpu": 4})
ENTITLED = queue("entitled", quotas={"cpu": 12})
WHOLE = queue("whole", quotas={"cpu": 16})
SIZE = 4

Attack = Callable[[Engine], None]


def members(count: int = SIZE, **fields: Any) -> list[kube.Pod]:
    shape = {"cpu": 4, "group": "old", "on": "n", "charged": "small"}
    return [pod(f"old-{i}", **{**shape, **fields}) for i in range(count)]


def borrowed(in_queue: str = "small", *, preemptible: bool = True) -> list[kube.KubeObject]:
    """A gang of all cores, bound by the binder as preemptible or not."""
    pods = members(charged=in_queue, charged_preemptible=preemptible)
    return [group("old", SIZE, in_queue), *pods]


def annotates_its_pods(engine: Engine) -> None:
    modify(engine.cluster, *members(preemptible=False, charged_preemptible=True))


def changes_the_preemptibility(engine: Engine) -> None:
    modify(engine.cluster, group("old", SIZE, "small", preemptibility="NonPreemptible"))


def changes_the_class(engine: Engine) -> None:
    modify(engine.cluster, group("old", SIZE, "small", priority_class="high"))


def recreates_the_group(engine: Engine) -> None:
    delete(engine.cluster, group("old", SIZE, "small"))
    add(engine.cluster, group("old", SIZE, "small", uid="2", preemptibility="NonPreemptible"))


def adds_a_small_pod_that_stays(engine: Engine) -> None:
    add(
        engine.cluster,
        pod(
            "old-x",
            "1m",
            group="old",
            on="n",
            charged="small",
            preemptible=False,
            charged_preemptible=False,
        ),
    )


ATTACKS = [
    annotates_its_pods,
    changes_the_preemptibility,
    changes_the_class,
    recreates_the_group,
    adds_a_small_pod_that_stays,
]


def reclaims(engine: Engine) -> bool:
    """Submit a gang of an entitled queue; return whether room is made for it."""
    add(engine.cluster, *gang("wants", 3, cpu=4, queue="entitled"))
    plan(engine)
    assert view(engine.cluster.state) == recount(engine.cluster.state)
    return bool(engine.report.evictions)


def preemptible(engine: Engine) -> set[bool]:
    tasks = engine.cluster.state.tasks.values()
    return {task.is_preemptible for task in tasks if task.job.name == "old"}


def records(engine: Engine) -> set[str]:
    """Return what the scheduler writes onto bound pods."""
    return {
        charges(task)[CHARGED_PREEMPTIBILITY_ANNOTATION] for task in engine.cluster.unrecorded()
    }


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("enforced", [True, False])
def test_pods_above_the_quota_do_not_become_non_preemptible(
    attack: Attack, *, enforced: bool
) -> None:
    engine = engine_with(BIG, HIGH, SMALL, ENTITLED, *borrowed(), tenancy_policy_enforced=enforced)
    attack(engine)

    assert reclaims(engine)
    assert records(engine) == set()


@pytest.mark.parametrize("attack", ATTACKS[:4])
def test_a_scheduler_that_starts_after_the_change_uses_the_record(attack: Attack) -> None:
    engine = engine_with(SMALL, *borrowed())
    attack(engine)
    cluster = engine.cluster
    restarted = engine_with(tenancy_policy_enforced=True)
    observed = [cluster.observers.get(kube.Pod, (NAMESPACE, f"old-{i}")) for i in range(SIZE)]
    add(restarted.cluster, *(each for each in observed if each is not None))
    add(restarted.cluster, *cluster.groups.values(), HIGH, ENTITLED, SMALL, BIG)

    assert reclaims(restarted)


@pytest.mark.parametrize("attack", [annotates_its_pods, changes_the_preemptibility])
def test_pods_within_the_quota_become_non_preemptible_and_it_is_recorded(attack: Attack) -> None:
    engine = engine_with(
        BIG,
        queue("small", quotas={"cpu": 16}),
        ENTITLED,
        *borrowed(),
        tenancy_policy_enforced=True,
    )
    attack(engine)
    plan(engine)

    assert preemptible(engine) == {False}
    assert records(engine) == {"NonPreemptible"}
    assert not reclaims(engine)
    modify(engine.cluster, *members(preemptible=False, charged_preemptible=False))
    assert records(engine) == set()


def test_the_queues_rule_about_non_preemptible_pods_applies_to_bound_pods() -> None:
    forbids = QueueSpec(resources={"cpu": QueueResource(quota=16)}, non_preemptible=NamespaceRule())
    rule = Queue(metadata=kube.Meta(name="small", uid="uid-small"), spec=forbids)
    engine = engine_with(BIG, rule, *borrowed(), tenancy_policy_enforced=True)
    annotates_its_pods(engine)
    plan(engine)

    assert preemptible(engine) == {True}
    (problem,) = [p for p in engine.cluster.problems if p.reason == "NonPreemptibleNotAllowed"]
    assert problem.message.startswith("bound pods stay preemptible: namespace team may have no")


def test_the_owner_gets_one_event_with_the_amounts() -> None:
    engine = engine_with(BIG, SMALL, *borrowed(), tenancy_policy_enforced=True)
    changes_the_preemptibility(engine)
    plan(engine)
    plan(engine)

    (problem,) = [p for p in engine.cluster.problems if p.reason == "NonPreemptibleOverQuota"]
    assert problem.message == (
        "bound pods stay preemptible: non-preemptible pods of queue small hold 0 of its quota of "
        "4 cpu, and these request 16 more"
    )


def test_becoming_preemptible_needs_no_quota_and_the_reverse_does() -> None:
    room = [node("n", cpu=16), node("m", cpu=16)]
    engine = engine_with(
        *room, WHOLE, *borrowed("whole", preemptible=False), tenancy_policy_enforced=True
    )
    modify(engine.cluster, group("old", SIZE, "whole", preemptibility="NonPreemptible"))
    plan(engine)
    assert preemptible(engine) == {False}

    modify(engine.cluster, group("old", SIZE, "whole", preemptibility="Preemptible"))
    plan(engine)
    assert preemptible(engine) == {True}
    assert records(engine) == {"Preemptible"}
    add(engine.cluster, *gang("next", 4, cpu=4, queue="whole", preemptible=False))
    assert len(plan(engine)) == 4
    modify(engine.cluster, group("old", SIZE, "whole", preemptibility="NonPreemptible"))
    plan(engine)
    assert preemptible(engine) == {True}


@pytest.mark.parametrize("order", [1, -1])
def test_pods_keep_their_record_while_their_pod_group_and_class_are_missing(order: int) -> None:
    named = group("old", SIZE, "whole", priority_class="high")
    pods = members(charged="whole", charged_preemptible=False)
    parts: Sequence[kube.KubeObject] = [*pods, named, HIGH][::order]
    engine = engine_with(BIG, WHOLE, tenancy_policy_enforced=True)
    for part in parts:
        add(engine.cluster, part)
        plan(engine)

    assert preemptible(engine) == {False}
    delete(engine.cluster, named)
    plan(engine)
    assert preemptible(engine) == {False}
    assert records(engine) == set()


@pytest.mark.parametrize(("enforced", "stays"), [(True, True), (False, False)])
def test_a_pod_that_its_owner_bound_is_preemptible_without_quota(
    *, enforced: bool, stays: bool
) -> None:
    items = members(charged="", preemptible=False)
    engine = engine_with(
        BIG, SMALL, group("old", SIZE, "small"), *items, tenancy_policy_enforced=enforced
    )
    plan(engine)

    assert preemptible(engine) == {stays}


def test_a_pod_that_changes_between_commit_and_binding_is_bound_as_planned() -> None:
    engine = engine_with(BIG, SMALL, *gang("old", SIZE, cpu=4, queue="small"))
    (draft,) = engine.cycle()
    assert {each.non_preemptible for each in draft.spec.pods} == {False}
    add(engine.cluster, as_created(draft))

    changes_the_preemptibility(engine)
    assert preemptible(engine) == {True}
    waiting = [pod(f"old-{i}", 4, group="old", preemptible=False) for i in range(SIZE)]
    modify(engine.cluster, *waiting)
    assert preemptible(engine) == {True}


def test_a_non_preemptible_pod_is_committed_as_non_preemptible() -> None:
    items = gang("old", 1, cpu=4, queue="small", preemptible=False)
    (draft,) = engine_with(BIG, SMALL, *items).cycle()

    assert draft.spec.pods[0].non_preemptible


@pytest.mark.parametrize(("quota", "protects"), [(8, True), (7, False)])
def test_a_pod_protects_the_rest_of_its_gang_only_within_the_quota(
    quota: int, *, protects: bool
) -> None:
    shape: dict[str, Any] = {"cpu": 4, "group": "old", "on": "n", "charged": "small"}
    pinned = pod("old-0", preemptible=False, charged_preemptible=False, **shape)
    goes = pod("old-1", charged_preemptible=True, **shape)
    engine = engine_with(
        node("n", cpu=8),
        queue("small", quotas={"cpu": quota}),
        queue("entitled", quotas={"cpu": 8}),
        group("old", 2, "small"),
        pinned,
        goes,
        tenancy_policy_enforced=True,
    )

    add(engine.cluster, *gang("wants", 1, cpu=4, queue="entitled"))
    plan(engine)
    assert bool(engine.report.evictions) is not protects
