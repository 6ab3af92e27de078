"""A recent failure is not retried at once."""

import itertools

import pytest
from msgspec.structs import replace

from bindery.api.bindrequest import BindFailureReason
from bindery.kube.objects.bindrequests import CommittedStatement, UnboundPod
from bindery.scheduler.cache.failures import MOST_REFUSALS, FailureMemory
from bindery.scheduler.model.jobs import JobKey, Uid
from tests.scheduler.schedulerworld import (
    NAMESPACE,
    NOW,
    Clock,
    delete,
    engine_with,
    gang,
    modify,
    node,
    plan,
    pod,
    report_of,
    request,
)

COMPLETED = "2025-06-15T15:06:40Z"
"""The clock's time."""


def failed(
    name: str, on: str, *, reason: str = "BindFailed", of: str | None = None
) -> CommittedStatement:
    """Return a failed request for the pod `name`."""
    return request(
        f"r-{name}",
        {f"uid-{name}": on},
        phase="Failed",
        unbound=[UnboundPod(pod_name=name, pod_uid=f"uid-{name}", node=on, reason=reason)],
        completed=COMPLETED,
        group_name=of,
    )


def test_only_the_failed_job_avoids_the_node_for_a_while() -> None:
    clock = Clock()
    engine = engine_with(node("n", cpu=2), pod("p"), pod("q"), failed("p", "n"), clock=clock)

    assert plan(engine) == {"q": "n"}
    text = "0/1 nodes are available: 1 failed to bind it a short while ago"
    assert report_of(engine, "p").message == text
    clock.now += 14
    assert plan(engine) == {}
    clock.now += 2
    assert plan(engine) == {"p": "n"}


def test_the_cooldown_doubles_with_each_failure_up_to_the_configured_time() -> None:
    memory, at, cooldowns = FailureMemory(60.0), NOW, []
    for _ in range(6):
        memory.note(failed("g-0", "n", of="g"), lambda _: None, at)
        end = next(s for s in range(100) if not memory.avoided(JOB, at + s))
        cooldowns.append(end)
        at += end + 1
        memory.expire(at)
    assert cooldowns == [15, 30, 60, 60, 60, 60]

    memory.expire(at + 60)
    memory.note(failed("g-0", "n", of="g"), lambda _: None, at + 60)
    assert memory.avoided(JOB, at + 74) == ["n"]
    assert memory.avoided(JOB, at + 75) == []


def test_failures_of_pods_that_were_bound_together_count_once() -> None:
    memory = FailureMemory(60.0)
    for second in (2, 0, 1):
        memory.note(failed("g-0", "n", of="g"), lambda _: None, NOW + second)

    assert memory.avoided(JOB, NOW + 14) == ["n"]
    assert memory.avoided(JOB, NOW + 15) == []


def test_a_cooldown_ends_when_the_allocatable_resources_of_the_node_change() -> None:
    engine = engine_with(node("n"), node("m", cpu=0), pod("p"), failed("p", "n"))
    assert plan(engine) == {}
    modify(engine.cluster, node("n", labels={"a": "b"}))
    assert plan(engine) == {}

    modify(engine.cluster, node("n", gpu=2))

    assert plan(engine) == {"p": "n"}


def test_a_cooldown_ends_when_the_declared_features_of_the_node_change() -> None:
    engine = engine_with(node("n"), node("m", cpu=0), pod("p"), failed("p", "n"))
    assert plan(engine) == {}

    upgraded = node("n")
    modify(
        engine.cluster,
        replace(upgraded, status=replace(upgraded.status, declared_features=["Resizing"])),
    )

    assert plan(engine) == {"p": "n"}


def test_the_order_in_which_pods_and_requests_are_listed_does_not_matter() -> None:
    items = [node("n1"), *gang("g", 1), pod("p"), failed("g-0", "n1", of="g"), failed("p", "n1")]

    for order in itertools.islice(itertools.permutations(items), 0, None, 7):
        assert plan(engine_with(*order)) == {}


@pytest.mark.parametrize("reason", BindFailureReason)
def test_only_a_failure_of_the_node_starts_a_cooldown_of_the_node(
    reason: BindFailureReason,
) -> None:
    planned = plan(engine_with(node("n"), pod("p"), failed("p", "n", reason=reason)))

    assert planned == ({} if reason.blames_node else {"p": "n"})


def test_a_reason_given_by_a_binder_plugin_blames_the_node() -> None:
    assert plan(engine_with(node("n"), pod("p"), failed("p", "n", reason="NotReady"))) == {}


def test_a_failure_of_the_pod_the_gang_or_the_scheduler_does_not_blame_the_node() -> None:
    blaming = {reason for reason in BindFailureReason if reason.blames_node}

    assert blaming == {
        BindFailureReason.BIND_FAILED,
        BindFailureReason.CHECK_FAILED,
        BindFailureReason.INTERNAL_ERROR,
        BindFailureReason.NODE_GONE,
        BindFailureReason.PLUGIN_FAILED,
        BindFailureReason.UNCERTAIN,
    }


def test_a_gang_avoids_only_the_nodes_on_which_it_failed() -> None:
    items = [node("n1", 1), node("n2", 1), node("n3", 1), *gang("g", 2)]
    unbound = [
        UnboundPod(pod_name="g-0", pod_uid="uid-g-0", node="n1", reason="BindFailed"),
        UnboundPod(pod_name="g-1", pod_uid="uid-g-1", node="n2", reason="GangAborted"),
    ]
    places = {"uid-g-0": "n1", "uid-g-1": "n2"}
    found = request("r", places, phase="Failed", unbound=unbound, completed=COMPLETED)

    assert plan(engine_with(*items, found)) == {"g-0": "n2", "g-1": "n3"}


def test_a_failure_that_is_seen_often_counts_once() -> None:
    clock = Clock()
    engine = engine_with(node("n"), pod("p"), failed("p", "n"), clock=clock)
    clock.now += 61
    modify(engine.cluster, failed("p", "n"))

    assert plan(engine) == {"p": "n"}


def test_failures_of_a_deleted_job_are_forgotten() -> None:
    engine = engine_with(
        node("n"), *gang("g", 1), pod("p"), failed("p", "n"), failed("g-0", "n", of="g")
    )
    assert plan(engine) == {}
    group, member = gang("g", 1)

    delete(engine.cluster, group, pod("p"), member)

    failures = engine.cluster.failures
    for key in (JobKey(NAMESPACE, "g", True), JobKey(NAMESPACE, "p", False)):
        assert failures.avoided(key, NOW) == []


def test_a_job_is_not_planned_for_a_while_after_its_request_was_not_created() -> None:
    clock = Clock()
    engine = engine_with(node("n"), pod("p"), clock=clock)
    (draft,) = engine.cycle()
    engine.refused(draft)
    engine.cluster.failures.postpone(draft.tasks[0].job, NOW + 10, "no quota")

    assert plan(engine) == {}
    report = report_of(engine, "p")
    assert (report.reason, report.message) == ("CommitFailed", "no quota")
    clock.now += 10
    assert plan(engine) == {"p": "n"}


def test_nothing_is_planned_in_a_namespace_that_is_being_deleted() -> None:
    clock = Clock()
    engine = engine_with(
        node("n"), *gang("g", 2), pod("p"), pod("other", namespace="other"), clock=clock
    )
    engine.cluster.failures.leave_namespace(NAMESPACE, NOW + 60)

    assert plan(engine) == {"other": "n"}
    assert report_of(engine, "g").message == f"its namespace {NAMESPACE} is being deleted"

    clock.now += 61
    assert plan(engine).keys() == {"g-0", "g-1", "p"}


JOB = JobKey(NAMESPACE, "g", True)


def answers(memory: FailureMemory, now: float) -> tuple[object, ...]:
    """Return all answers of `memory` about the job `JOB` at `now`."""
    return (
        memory.avoided(JOB, now),
        memory.postponed(JOB, now),
        memory.refused_room(JOB, now),
        memory.has_tried_enough(JOB, now),
        memory.spared(now),
    )


def remembering() -> FailureMemory:
    """Return a memory of failures that all end at NOW + 60 or before."""
    memory = FailureMemory(60.0)
    memory.note(failed("g-0", "n", of="g"), lambda _: None, NOW)
    memory.postpone(JOB, NOW + 60, "no quota")
    memory.spare([Uid("v")], NOW + 60)
    for _ in range(MOST_REFUSALS):
        memory.note_refused_room(JOB, NOW + 60, "a budget", [Uid("v")])
    return memory


def test_queries_do_not_change_the_memory() -> None:
    memory = remembering()

    at_first = answers(memory, NOW)
    assert answers(memory, NOW + 60) == ([], None, None, False, frozenset())
    assert answers(memory, NOW) == at_first == (["n"], "no quota", "a budget", True, {"v"})


def test_expired_entries_are_deleted_and_refusals_restart_at_one() -> None:
    memory = remembering()

    memory.expire(NOW + 59)
    assert answers(memory, NOW + 59) == answers(remembering(), NOW + 59)
    memory.expire(NOW + 75)
    assert answers(memory, NOW) == ([], None, None, False, frozenset())
    memory.note_refused_room(JOB, NOW + 120, "a budget", [Uid("v")])
    assert not memory.has_tried_enough(JOB, NOW + 60)
