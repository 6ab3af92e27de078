"""A bound pod counts in the queue that it was charged to when it was bound, until it ends."""

from collections.abc import Callable

import pytest

from bindery.api.names import CHARGED_QUEUE_ANNOTATION, POD_GROUP_ANNOTATION
from bindery.kube.objects import watched as kube
from bindery.scheduler.engine import Engine
from tests.scheduler.recounting import recount, view
from tests.scheduler.schedulerworld import (
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
    report_of,
)

BIG = node("n", cpu=64)
LIMITED = queue("limited", cpu=8)
FREE = queue("free")

Attack = Callable[[Engine], None]


def running(recorded: str = "limited") -> list[kube.KubeObject]:
    """A gang that fills its queue's limit, as it is when it is bound."""
    pods = [pod(f"old-{i}", group="old", on="n", charged=recorded) for i in range(8)]
    return [group("old", 8, "limited"), *pods]


def deletes_the_group(engine: Engine) -> None:
    delete(engine.cluster, group("old", 8, "limited"))


def changes_the_groups_queue(engine: Engine) -> None:
    modify(engine.cluster, group("old", 8, "free"))


def recreates_the_group_elsewhere(engine: Engine) -> None:
    deletes_the_group(engine)
    add(engine.cluster, group("old", 8, "free", uid="uid-second"))


def takes_the_pods_out_of_the_group(engine: Engine) -> None:
    modify(engine.cluster, *(pod(f"old-{i}", on="n", charged="limited") for i in range(8)))


def moves_the_pods_to_another_group(engine: Engine) -> None:
    add(engine.cluster, group("other", 1, "free", charged="free"))
    members = (
        pod(f"old-{i}", on="n", group="other", charged="limited", charged_group="uid-group-old")
        for i in range(8)
    )
    modify(engine.cluster, *members)


ATTACKS = [
    deletes_the_group,
    changes_the_groups_queue,
    recreates_the_group_elsewhere,
    takes_the_pods_out_of_the_group,
    moves_the_pods_to_another_group,
]


def held(engine: Engine) -> dict[str, int]:
    """Return queue -> milli cores that its pods hold."""
    amounts = view(engine.cluster.state).queues
    return {name: cpu[0] for name, held in amounts.items() if (cpu := held.get("cpu")) and cpu[0]}


def waits_for_the_limit(engine: Engine) -> bool:
    add(engine.cluster, *gang("next", 2, queue="limited"))
    placed = plan(engine)
    assert view(engine.cluster.state) == recount(engine.cluster.state)
    return placed == {} and report_of(engine, "next").reason == "OverLimit"


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("enforced", [True, False])
def test_changes_of_running_pods_or_their_gang_release_no_quota_of_their_queue(
    attack: Attack, *, enforced: bool
) -> None:
    engine = engine_with(BIG, LIMITED, FREE, *running(), tenancy_policy_enforced=enforced)

    attack(engine)

    assert waits_for_the_limit(engine)
    assert held(engine) == {"limited": 8000}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_scheduler_that_starts_after_the_change_uses_the_record(attack: Attack) -> None:
    seen = engine_with(BIG, LIMITED, FREE, *running())
    attack(seen)
    cluster = seen.cluster
    restarted = engine_with(BIG, LIMITED, FREE, *cluster.groups.values())
    for task in cluster.state.tasks.values():
        add(
            restarted.cluster,
            pod(
                task.name,
                group=task.job.name if task.job.is_group else None,
                on="n",
                charged=task.recorded_queue,
                charged_group=task.recorded_group,
            ),
        )

    assert waits_for_the_limit(restarted)


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_observed_queue_wins_over_a_changed_record_without_the_policy(
    attack: Attack,
) -> None:
    engine = engine_with(BIG, LIMITED, FREE, *gang("old", 8, queue="limited"))
    (draft,) = engine.cycle()
    add(engine.cluster, as_created(draft))
    bound = running()[1:]
    modify(engine.cluster, *bound)

    attack(engine)
    for known in bound:
        forged = {CHARGED_QUEUE_ANNOTATION: "free", POD_GROUP_ANNOTATION: "old"}
        modify(engine.cluster, _annotated(known, forged))

    assert waits_for_the_limit(engine)


def test_the_record_is_used_as_it_is_with_the_policy() -> None:
    engine = engine_with(BIG, LIMITED, FREE, *running(), tenancy_policy_enforced=True)

    modify(engine.cluster, *running("free")[1:])

    assert held(engine) == {"free": 8000}


def test_a_pod_observed_as_bound_stays_charged_without_a_record() -> None:
    waiting = gang("old", 8, queue="limited")
    engine = engine_with(BIG, LIMITED, FREE, *waiting, tenancy_policy_enforced=True)
    modify(engine.cluster, *running("")[1:])

    deletes_the_group(engine)

    assert waits_for_the_limit(engine)


def test_a_record_on_a_waiting_pod_is_ignored() -> None:
    engine = engine_with(BIG, LIMITED, FREE, *running(), tenancy_policy_enforced=True)
    add(engine.cluster, group("sly", 1, "limited"), pod("sly", group="sly", charged="free"))

    assert plan(engine) == {}


def test_pods_of_a_request_stay_charged_while_it_is_active() -> None:
    engine = engine_with(BIG, LIMITED, FREE, *gang("old", 8, queue="limited"))
    (draft,) = engine.cycle()
    add(engine.cluster, as_created(draft))

    changes_the_groups_queue(engine)

    assert waits_for_the_limit(engine)


def test_a_gang_requests_from_the_queue_that_its_running_pods_are_charged_to() -> None:
    engine = engine_with(BIG, LIMITED, FREE, *running())
    changes_the_groups_queue(engine)

    add(engine.cluster, pod("old-8", group="old"))

    assert plan(engine) == {}
    assert "queue limited holds 8 of its limit of 8 cpu" in report_of(engine, "old").message


def test_a_gang_is_in_the_queue_of_its_spec_once_its_pods_have_ended() -> None:
    engine = engine_with(BIG, LIMITED, FREE, *running())
    changes_the_groups_queue(engine)
    add(engine.cluster, pod("old-8", group="old"))

    delete(engine.cluster, *running()[1:8])
    modify(engine.cluster, group("old", 1, "free"))
    delete(engine.cluster, running()[8])

    assert list(plan(engine)) == ["old-8"]
    assert held(engine) == {"free": 1000}


def test_a_running_gang_moves_when_it_is_assigned_to_another_queue() -> None:
    engine = engine_with(BIG, LIMITED, FREE, *running(), tenancy_policy_enforced=True)

    modify(engine.cluster, group("old", 8, "free", charged="limited"))

    assert held(engine) == {"free": 8000}
    assert [task.name for task in engine.cluster.unrecorded()] == [f"old-{i}" for i in range(8)]
    modify(engine.cluster, *running("free")[1:])
    assert engine.cluster.unrecorded() == []
    assert view(engine.cluster.state) == recount(engine.cluster.state)


def test_a_bound_pod_relabelled_into_an_assigned_gang_keeps_its_queue() -> None:
    assigned = group("other", 1, "free", charged="free")
    waiting = gang("old", 8, queue="limited")
    engine = engine_with(BIG, LIMITED, FREE, assigned, *waiting, tenancy_policy_enforced=True)
    (draft,) = engine.cycle()
    add(engine.cluster, as_created(draft))

    modify(engine.cluster, *(pod(f"old-{i}", group="other") for i in range(8)))
    assert held(engine) == {"limited": 8000}
    moves_the_pods_to_another_group(engine)

    assert held(engine) == {"limited": 8000}
    assert engine.cluster.unrecorded() == []


def test_a_running_gang_cannot_be_assigned_without_the_policy() -> None:
    engine = engine_with(BIG, LIMITED, FREE, *running())

    modify(engine.cluster, group("old", 8, "free", charged="limited"))

    assert held(engine) == {"limited": 8000}


def test_a_running_pod_without_a_gang_keeps_its_queue_when_its_label_changes() -> None:
    alone = pod("a", cpu=8, queue="limited", on="n", charged="limited")
    engine = engine_with(BIG, LIMITED, FREE, alone)

    modify(engine.cluster, pod("a", cpu=8, queue="free", on="n", charged="limited"))

    assert waits_for_the_limit(engine)


def _annotated(known: kube.KubeObject, annotations: dict[str, str]) -> kube.Pod:
    assert isinstance(known, kube.Pod)
    return pod(
        known.metadata.name,
        group=annotations.get(POD_GROUP_ANNOTATION),
        on=known.spec.node_name,
        charged=annotations[CHARGED_QUEUE_ANNOTATION],
    )
