"""Pending operations: mutual exclusion, and the delay after a failure."""

import pytest

from bindery.nodecore.operations import (
    AlreadyPendingError,
    BackoffError,
    OperationKey,
    PendingOperations,
)

NONE = OperationKey("")
VOLUME = OperationKey("volume")
IN_POD = OperationKey("volume", pod="pod")
ON_NODE = OperationKey("volume", node="node")


class Clock:
    """A clock that is set."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def operations(clock: Clock) -> PendingOperations:
    return PendingOperations(clock)


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        (NONE, NONE, True),
        (NONE, VOLUME, True),
        (NONE, IN_POD, True),
        (NONE, ON_NODE, True),
        (VOLUME, NONE, True),
        (VOLUME, VOLUME, False),
        (VOLUME, IN_POD, False),
        (VOLUME, ON_NODE, False),
        (IN_POD, NONE, True),
        (IN_POD, VOLUME, False),
        (IN_POD, IN_POD, False),
        (IN_POD, OperationKey("volume", pod="other"), True),
        (ON_NODE, NONE, True),
        (ON_NODE, VOLUME, False),
        (ON_NODE, ON_NODE, False),
        (ON_NODE, OperationKey("volume", node="other"), True),
        (VOLUME, OperationKey("other"), True),
    ],
)
def test_operations_without_shared_objects_run_concurrently(
    first: OperationKey, second: OperationKey, both: bool, operations: PendingOperations
) -> None:
    operations.start(first, "first")

    assert operations.may_start(second, "second") is both
    if both:
        operations.start(second, "second")
    else:
        with pytest.raises(AlreadyPendingError):
            operations.start(second, "second")


@pytest.mark.parametrize("error", [None, "broken"])
def test_a_finished_operation_admits_the_next_one(
    error: str | None, operations: PendingOperations, clock: Clock
) -> None:
    operations.start(VOLUME, "mount")
    operations.finish(VOLUME, error)
    clock.now_s += 0.6

    operations.start(VOLUME, "mount")
    assert operations.is_pending(VOLUME)


def test_a_failed_operation_does_not_affect_others_of_its_volume(
    operations: PendingOperations, clock: Clock
) -> None:
    """The end of one operation must not be taken for the end of another on the same volume."""
    one, two = (OperationKey("volume", node=name) for name in ("one", "two"))
    operations.start(OperationKey("other"), "attach")
    operations.start(one, "attach")
    operations.start(two, "attach")
    operations.finish(OperationKey("other"))
    operations.finish(two, "broken")
    operations.finish(one)

    with pytest.raises(BackoffError):
        operations.start(two, "attach")
    clock.now_s += 0.6
    for _ in range(2):
        operations.start(two, "attach")
        operations.finish(two)
    assert not operations.is_pending(two)


def of_pod(name: str) -> OperationKey:
    return OperationKey("volume", pod=name)


def test_a_running_operation_takes_precedence_over_failed_ones(
    operations: PendingOperations,
) -> None:
    for name in ("one", "two", "three"):
        operations.start(of_pod(name), "unmount")
    for name in ("one", "two"):
        operations.finish(of_pod(name), "broken")

    with pytest.raises(AlreadyPendingError):
        operations.start(VOLUME, "mount")


def test_a_failed_operation_of_the_same_key_takes_precedence(
    operations: PendingOperations, clock: Clock
) -> None:
    for name in ("one", "two", "three"):
        operations.start(of_pod(name), "unmount")
        operations.finish(of_pod(name), "broken")
    operations.start(VOLUME, "mount")
    operations.finish(VOLUME, "broken")
    clock.now_s += 0.6

    operations.start(of_pod("two"), "unmount")
    operations.finish(of_pod("two"))
    assert operations.may_start(of_pod("two"), "unmount")
    clock.now_s -= 0.6
    assert not operations.may_start(of_pod("three"), "unmount")
