"""The figures in the status of a PodGroup, and the frequency of writes."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bindery.api.times import seconds, timestamp
from bindery.kube.objects import watched as kube
from bindery.kube.objects.podgroups import PodCounts, PodGroup
from bindery.kube.objects.watched import Condition
from bindery.scheduler.engine import Engine
from bindery.scheduler.status.conditions import ConditionWrite, pending_writes
from tests.scheduler.schedulerworld import (
    NOW,
    Clock,
    add,
    delete,
    engine_with,
    group,
    modify,
    node,
    plan,
    pod,
)

BOUND = Condition(type="PodScheduled", status="True", last_transition_time=timestamp(NOW - 30))


def write_of(engine: Engine, clock: Clock) -> ConditionWrite | None:
    """Plan, and return the write of the PodGroup `g`; the loop then knows no changed jobs."""
    plan(engine)
    found = {w.meta.name: w for w in pending_writes(engine.cluster, engine.report, clock())}
    engine.cluster.changed_jobs.clear()
    return found.get("g")


def written(engine: Engine, clock: Clock) -> PodGroup:
    """Write the status of `g`, and return the object."""
    write = write_of(engine, clock)
    assert write is not None
    assert write.figures is not None
    (known,) = engine.cluster.groups.values()
    figures = write.figures
    status = replace(
        known.status,
        state=str(write.state),
        conditions=list(write.all_conditions),
        pods=figures.pods,
        since=figures.since,
        ran_seconds=figures.ran_seconds,
        assigned_queue=figures.assigned_queue,
    )
    shown = replace(known, status=status)
    modify(engine.cluster, shown)
    engine.cluster.changed_jobs.clear()
    return shown


def members(count: int, phase: str, on: str = "n") -> list[kube.Pod]:
    return [pod(f"g-{i}", group="g", on=on, phase=phase, conditions=[BOUND]) for i in range(count)]


KINDS = {
    "pending": ("", ""),
    "starting": ("n", "Pending"),
    "running": ("n", "Running"),
    "succeeded": ("n", "Succeeded"),
    "failed": ("n", "Failed"),
}


@given(kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=6))
def test_every_pod_is_counted_once_and_running_pods_count_as_bound(kinds: Sequence[str]) -> None:
    pods = [
        pod(f"g-{i}", cpu=99, group="g", on=KINDS[kind][0], phase=KINDS[kind][1])
        for i, kind in enumerate(kinds)
    ]
    engine = engine_with(node("n"), group("g", 9), *pods)

    write = write_of(engine, Clock())

    assert write is not None
    assert write.figures is not None
    assert write.figures.pods == PodCounts(
        pending=kinds.count("pending"),
        bound=kinds.count("starting") + kinds.count("running"),
        running=kinds.count("running"),
        succeeded=kinds.count("succeeded"),
        failed=kinds.count("failed"),
    )


def test_starts_of_pods_cause_one_late_write_of_the_counts() -> None:
    clock = Clock()
    engine = engine_with(node("n"), group("g", 2), clock=clock)
    add(engine.cluster, *members(2, "Pending"))
    first = written(engine, clock)
    assert first.status.pods == PodCounts(bound=2)

    modify(engine.cluster, *members(2, "Running"))
    write = write_of(engine, clock)

    assert write is not None
    assert write.is_minor
    assert write.patience_s >= 5
    assert write.figures is not None
    assert write.figures.pods == PodCounts(bound=2, running=2)
    assert write.figures.since == first.status.since


def test_the_running_state_begins_with_the_binding_of_the_last_pod() -> None:
    clock = Clock()
    engine = engine_with(node("n"), group("g", 2), *members(2, "Running"), clock=clock)

    assert written(engine, clock).status.since == timestamp(NOW - 30)


def test_run_time_adds_up_over_runs_without_waiting_time() -> None:
    clock = Clock()
    pods = members(2, "Running")
    engine = engine_with(node("n"), group("g", 2), *pods, clock=clock)
    written(engine, clock)

    clock.now = NOW + 70
    delete(engine.cluster, *pods)
    assert written(engine, clock).status.ran_seconds == 100

    clock.now = NOW + 1000
    late = replace(BOUND, last_transition_time=timestamp(NOW + 990))
    again = [pod(f"r-{i}", group="g", on="n", conditions=[late]) for i in range(2)]
    add(engine.cluster, *again)
    status = written(engine, clock).status
    assert (status.ran_seconds, seconds(status.since)) == (100, NOW + 990)


def test_a_finished_gang_keeps_its_counts_when_its_pods_are_deleted() -> None:
    clock = Clock()
    pods = members(2, "Succeeded")
    engine = engine_with(node("n"), group("g", 2), *pods, clock=clock)
    assert written(engine, clock).status.pods == PodCounts(succeeded=2)

    delete(engine.cluster, *pods)

    assert write_of(engine, clock) is None
