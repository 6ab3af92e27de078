"""The queue in a PodGroup's status: the one that its bound pods are charged to."""

import pytest

from bindery.scheduler.engine import Engine
from bindery.scheduler.status.conditions import ConditionWrite, pending_writes
from tests.scheduler.schedulerworld import (
    NOW,
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

PODS = [pod(f"g-{i}", group="g", on="n", charged="limited") for i in range(2)]


def world(*, enforced: bool = True, charged: str = "") -> Engine:
    items = (node("n"), queue("limited"), queue("free"), group("g", 2, "limited", charged=charged))
    return engine_with(*items, *PODS, tenancy_policy_enforced=enforced)


def write(engine: Engine) -> ConditionWrite | None:
    """Run a cycle; return the pending write to the PodGroup."""
    plan(engine)
    writes = pending_writes(engine.cluster, engine.report, NOW)
    return next((each for each in writes if each.meta.name == "g"), None)


def queue_written(engine: Engine) -> str | None:
    found = write(engine)
    return found.queue if found is not None else None


def test_the_status_has_the_queue_that_all_bound_pods_are_charged_to() -> None:
    assert queue_written(world()) == "limited"


def test_the_status_has_the_queue_from_the_commit_on() -> None:
    items = gang("g", 2, queue="limited")
    engine = engine_with(node("n"), queue("limited"), *items, tenancy_policy_enforced=True)

    assert queue_written(engine) == "limited"


def test_an_unchanged_queue_is_not_written() -> None:
    engine = world(charged="limited")
    found = write(engine)
    assert found is not None
    assert found.queue is None  # its state is written alone


def test_a_change_of_the_queue_before_the_first_write_is_no_assignment() -> None:
    engine = world()

    modify(engine.cluster, group("g", 2, "free"))

    found = write(engine)
    assert found is not None
    assert found.queue is None
    assert found.condition.message.startswith("its bound pods are charged to queue limited")


def test_the_status_follows_an_assignment() -> None:
    engine = world(charged="limited")

    modify(engine.cluster, group("g", 2, "free", charged="limited"))

    assert queue_written(engine) == "free"


def test_the_queue_is_removed_with_the_last_bound_pod() -> None:
    engine = world(charged="limited")

    delete(engine.cluster, PODS[0])
    assert queue_written(engine) is None
    delete(engine.cluster, PODS[1])

    assert queue_written(engine) == ""


@pytest.mark.parametrize("charged", ["", "limited"])
def test_the_status_has_no_queue_without_the_policy(charged: str) -> None:
    written = queue_written(world(enforced=False, charged=charged))

    assert written == ("" if charged else None)
