"""Bound pods that do not start are in the condition of their gang, each with its reason."""

from msgspec.structs import replace

from bindery.api.states import PODS_NOT_RUNNING
from bindery.api.times import timestamp
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import (
    Condition,
    ContainerState,
    ContainerStatus,
    Node,
    Pod,
    PodStatus,
    WaitingContainer,
)
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.starts import START_WITHIN_S
from bindery.scheduler.status.conditions import ConditionWrite, pending_writes
from tests.scheduler.schedulerworld import (
    NOW,
    Clock,
    delete,
    engine_with,
    group,
    modify,
    node,
    plan,
    pod,
)

SINCE = "2025-06-15T15:00:00Z"


def not_ready(name: str) -> Node:
    made = node(name, ready=False)
    said = Condition(type="Ready", status="Unknown", last_transition_time=SINCE)
    return replace(made, status=replace(made.status, conditions=[said]))


def bound(
    name: str,
    on: str = "n",
    *,
    waits: str = "",
    message: str = "",
    accepted: bool = True,
    prepared: bool = True,
) -> Pod:
    """Return a pod that was bound at NOW and does not run; `waits`: the reason of its container."""
    state = ContainerState(waiting=WaitingContainer(reason=waits, message=message))
    said = {"PodScheduled": "True", "PodReadyToStartContainers": str(prepared)}
    status = PodStatus(
        phase="Pending",
        start_time=timestamp(NOW) if accepted else None,
        conditions=[
            Condition(type=kind, status=value, last_transition_time=timestamp(NOW))
            for kind, value in said.items()
        ],
        container_statuses=[ContainerStatus(name="main", state=state)] if waits else None,
    )
    return replace(pod(name, group="g", on=on), status=status)


def write_of(engine: Engine, now: float = NOW) -> ConditionWrite | None:
    plan(engine)
    writes = list(pending_writes(engine.cluster, engine.report, now))
    engine.cluster.changed_jobs.clear()
    return next((write for write in writes if write.meta.name == "g"), None)


def late(engine: Engine, now: float = NOW) -> Condition | None:
    write = write_of(engine, now)
    assert write is not None
    found = (each for each in write.all_conditions if each.type == PODS_NOT_RUNNING)
    return next(found, None)


def told(write: ConditionWrite) -> PodGroup:
    made = group("g", 2, conditions=write.all_conditions)
    assert write.figures is not None
    status = replace(
        made.status,
        state=write.state,
        pods=write.figures.pods,
        since=write.figures.since,
        assigned_queue=write.figures.assigned_queue,
    )
    return replace(made, status=status)


def test_pods_on_a_not_ready_node_are_reported_until_it_is_ready() -> None:
    engine = engine_with(node("n"), group("g", 2), bound("a"), bound("b"), node("m"))
    first = write_of(engine)
    assert first is not None
    assert [each.type for each in first.all_conditions] == ["Scheduled"]
    modify(engine.cluster, told(first))
    assert write_of(engine) is None

    modify(engine.cluster, not_ready("n"))
    write = write_of(engine)

    assert write is not None
    condition = write.all_conditions[-1]
    assert (condition.type, condition.status) == (PODS_NOT_RUNNING, "True")
    assert condition.reason == "NodeNotReady"
    assert condition.message == (
        "2 of 2 bound pods are not known to run: a,b: node n has not been ready since " + SINCE
    )
    assert write.state == "Running"
    modify(engine.cluster, told(write))
    assert write_of(engine) is None
    modify(engine.cluster, node("n"))
    assert late(engine) is None


def test_a_failed_image_pull_is_reported_at_once_with_the_nodes_message() -> None:
    stuck = bound("a", waits="ImagePullBackOff", message='Back-off pulling image "x"')
    engine = engine_with(node("n"), group("g", 2), stuck, pod("b", group="g", on="n"))

    condition = late(engine)

    assert condition is not None
    assert condition.reason == "ImageNotPulled"
    assert condition.message == (
        "1 of 2 bound pods is not known to run: "
        'a: container main: ImagePullBackOff: Back-off pulling image "x"'
    )


def test_a_container_that_cannot_be_created_is_reported() -> None:
    stuck = bound("a", waits="CreateContainerConfigError", message='secret "s" not found')

    condition = late(engine_with(node("n"), group("g", 1), stuck))

    assert condition is not None
    assert condition.reason == "ContainerNotStarted"


def test_pods_in_preparation_are_reported_when_it_takes_long() -> None:
    clock = Clock()
    pods = [
        bound("a", waits="ContainerCreating", prepared=False),
        bound("b", waits="ContainerCreating"),
        bound("c", accepted=False),
    ]
    engine = engine_with(node("n"), group("g", 2), *pods, clock=clock)
    first = write_of(engine)
    assert first is not None
    assert len(first.all_conditions) == 1
    modify(engine.cluster, told(first))
    assert write_of(engine) is None

    clock.now += START_WITHIN_S
    write = write_of(engine, clock.now)  # by time alone

    assert write is not None
    message = write.all_conditions[-1].message
    assert message.startswith("3 of 3 bound pods are not known to run: a: its volumes or its net")
    assert "b: its containers are being created" in message
    assert message.endswith("c: its node has not accepted it")
    modify(engine.cluster, told(write))
    assert write_of(engine, clock.now) is None


def test_pods_that_run_have_ended_or_are_deleted_are_not_late() -> None:
    clock = Clock()
    waiting = bound("a", waits="ContainerCreating")
    engine = engine_with(node("n"), group("g", 1), waiting, clock=clock)
    modify(engine.cluster, pod("a", group="g", on="n"))
    gone = bound("b", waits="ErrImagePull")
    modify(engine.cluster, gone)
    delete(engine.cluster, gone)
    clock.now += START_WITHIN_S + 1

    assert late(engine, clock.now) is None


def deleted(name: str, on: str = "n") -> Pod:
    return pod(name, group="g", on=on, deleting=timestamp(NOW))


def scheduled(engine: Engine, now: float = NOW) -> tuple[str, str]:
    write = write_of(engine, now)
    assert write is not None
    (found,) = [each for each in write.all_conditions if each.type == "Scheduled"]
    return found.reason, found.message


def test_a_gang_with_terminating_pods_on_a_dead_node_reports_the_node_and_time() -> None:
    engine = engine_with(not_ready("n"), group("g", 2), deleted("a"), deleted("b"))

    reason, message = scheduled(engine)

    assert reason == "PodsNotDeleted"
    assert message == (
        "0 of 2 required pods exist; 2 pods are being deleted (grace period until "
        f"{timestamp(NOW)}) and cannot end: a,b: node n has not been ready since {SINCE}"
    )


def test_terminating_pods_on_a_ready_node_are_reported_when_long_overdue() -> None:
    clock = Clock()
    engine = engine_with(node("n"), group("g", 2), deleted("a"), clock=clock)
    assert scheduled(engine) == ("NotEnoughPods", "0 of 2 required pods exist")

    clock.now += 200
    reason, message = scheduled(engine, clock.now)

    assert reason == "PodsNotDeleted"
    assert "cannot end: a: node n is ready, but does not end them" in message


def test_a_gang_with_a_pod_on_a_dead_node_reports_it_while_another_pod_waits() -> None:
    engine = engine_with(not_ready("n"), group("g", 2), deleted("a"), pod("b", group="g"))

    reason, message = scheduled(engine)

    assert reason == "PodsNotDeleted"
    assert "1 of 2 required pods exist; 1 pod is being deleted" in message


def test_a_terminating_pod_of_a_gang_that_needs_none_reports_its_dead_node() -> None:
    engine = engine_with(not_ready("n"), group("g", 0), deleted("a"))

    reason, message = scheduled(engine)

    assert reason == "PodsNotDeleted"
    assert message.startswith("none of its pods has a node; 1 pod is being deleted")


def test_a_terminating_pod_that_may_still_end_is_no_reason() -> None:
    engine = engine_with(node("n"), group("g", 2), deleted("a"), deleted("b"))

    assert scheduled(engine) == ("NotEnoughPods", "0 of 2 required pods exist")


def test_pods_count_as_overdue_until_they_start_or_are_deleted() -> None:
    stuck = bound("a", accepted=False), bound("b", accepted=False)
    engine = engine_with(node("n"), group("g", 2), *stuck)
    overdue = engine.cluster.starting.overdue
    engine.cluster.note_time(NOW + START_WITHIN_S - 1)
    assert not overdue
    engine.cluster.note_time(NOW + START_WITHIN_S)
    assert len(overdue) == 2

    modify(engine.cluster, bound("a", waits="ContainerCreating"))
    assert len(overdue) == 2, "it still waits"
    modify(engine.cluster, replace(pod("a", group="g", on="n"), status=PodStatus(phase="Running")))
    assert len(overdue) == 1
    delete(engine.cluster, stuck[1])
    assert not overdue
