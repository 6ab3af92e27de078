"""The status fields of a request with several Statements, as tables."""

from typing import Any

import msgspec
import pytest

from bindery.binder.outcome.status import malformed_status, shared_status
from bindery.kube.objects.bindrequests import (
    BindRequest,
    BindRequestSpec,
    BindRequestStatus,
    PodBinding,
    PodGroupReference,
    StatementSpec,
)
from bindery.kube.objects.watched import Meta

EARLY, LATE = "2026-01-01T00:00:01.000Z", "2026-01-01T00:00:02.000Z"
PENDING: dict[str, Any] = {}
WAITING = {"phase": "Pending", "reason": "Preparing", "message": "a volume"}
BEGUN = {"phase": "Binding", "reason": "BindFailed", "message": "again", "boundPods": ["x"]}
BOUND = {"phase": "Succeeded", "reason": "Bound", "completionTime": EARLY}
FAILED: dict[str, Any] = {
    "phase": "Failed",
    "reason": "PodGone",
    "message": "no pod",
    "completionTime": LATE,
}


def unbound(*uids: str) -> list[dict[str, str]]:
    return [{"podName": u, "podUID": u, "node": "n", "reason": "r", "message": ""} for u in uids]


FAILED |= {"unboundPods": unbound("g0-0", "g0-1"), "failedAttempts": 2}
PARTLY = BOUND | {"reason": "PartlyBound", "unboundPods": unbound("g1-0")}


def stored(count: int, *, gangs: bool = True) -> BindRequest:
    """Return a request with gangs of two pods each."""

    def committed(name: str) -> StatementSpec:
        pods = [
            PodBinding(pod_name=f"{name}-{n}", pod_uid=f"{name}-{n}", selected_node="n")
            for n in range(2)
        ]
        group = PodGroupReference(name=f"gang-{name}", uid=name) if gangs else None
        return StatementSpec(id=name, pods=pods, pod_group=group)

    return BindRequest(
        metadata=Meta(name="shared", namespace="here"),
        spec=BindRequestSpec(statements=[committed(f"g{n}") for n in range(count)]),
    )


def status(*changes: dict[str, Any], gangs: bool = True) -> dict[str, Any]:
    request = stored(len(changes), gangs=gangs)
    given = {f"g{n}": change for n, change in enumerate(changes) if change}
    return shared_status(request, given)


@pytest.mark.parametrize(
    ("changes", "phase", "bound"),
    [
        ([PENDING, WAITING], "Pending", 0),
        ([PENDING, BEGUN], "Binding", 1),
        ([PENDING, BOUND], "Binding", 2),
        ([FAILED, PENDING], "Binding", 0),
        ([BOUND, BOUND], "Succeeded", 4),
        ([BOUND, PARTLY], "Succeeded", 3),
        ([FAILED, BOUND], "Failed", 2),
        ([FAILED, FAILED], "Failed", 0),
    ],
)
def test_the_phase_is_combined_and_bound_pods_are_counted(
    changes: list[dict[str, Any]], phase: str, bound: int
) -> None:
    found = status(*changes)

    assert (found["phase"], found["boundCount"]) == (phase, bound)
    assert (found["completionTime"] is not None) == (phase in ("Succeeded", "Failed"))


@pytest.mark.parametrize(
    ("changes", "reason", "message"),
    [
        ([PENDING, PENDING], "", ""),
        ([BOUND, PENDING], "", ""),
        ([BOUND, WAITING], "Preparing", "gang-g1: a volume"),
        ([FAILED, WAITING], "PodGone", "1 of 2 Statements failed; gang-g0: no pod"),
        ([BOUND, FAILED], "PodGone", "1 of 2 Statements failed; gang-g1: no pod"),
        ([FAILED, FAILED, BOUND], "PodGone", "2 of 3 Statements failed; gang-g0: no pod"),
        ([BOUND, PARTLY], "PartlyBound", ""),
        ([BOUND, BOUND], "Bound", ""),
        ([FAILED], "PodGone", "no pod"),
        ([WAITING], "Preparing", "a volume"),
        ([PENDING], "", ""),
    ],
)
def test_reason_and_message_are_of_the_most_important_statement(
    changes: list[dict[str, Any]], reason: str, message: str
) -> None:
    found = status(*changes)

    assert (found["reason"], found["message"]) == (reason, message)


def test_pods_without_a_gang_are_listed_as_such() -> None:
    found = status(BOUND, WAITING, gangs=False)

    assert found["message"] == "pods without a gang: a volume"


def test_completion_time_is_the_latest_and_attempts_are_the_maximum() -> None:
    found = status(FAILED, BOUND, BOUND)

    assert (found["completionTime"], found["failedAttempts"]) == (LATE, 2)


def test_bound_pods_are_listed_only_until_there_is_an_outcome() -> None:
    first = status(BEGUN, PENDING)
    assert first["statements"] == [{"id": "g0", **BEGUN}]

    known = msgspec.convert(msgspec.to_builtins(first), BindRequestStatus)
    request = msgspec.structs.replace(stored(2), status=known)
    second = shared_status(request, {"g0": {**BOUND, "boundPods": ["g0-0", "g0-1"]}})

    assert second["statements"] == [{"id": "g0", "message": "again", **BOUND}]


def test_the_status_of_neighbours_is_kept_and_of_unknown_statements_dropped() -> None:
    known = msgspec.convert(
        {"statements": [{"id": "g1", **FAILED}, {"id": "stranger", **FAILED}]},
        BindRequestStatus,
    )
    request = msgspec.structs.replace(stored(2), status=known)

    found = shared_status(request, {"g0": BOUND})

    assert found["statements"] == [{"id": "g0", **BOUND}, {"id": "g1", **FAILED}]


def test_all_pods_of_a_malformed_statement_count_as_unbound() -> None:
    request = stored(2)
    change = malformed_status("nonsense", EARLY, request.spec.statements[0].pods)

    found = shared_status(request, {"g0": change, "g1": BOUND})

    assert found["boundCount"] == 2
    read = msgspec.convert(
        msgspec.to_builtins({k: v for k, v in found.items() if v is not None}),
        BindRequestStatus,
    )
    first, second = msgspec.structs.replace(request, status=read).each()
    assert (first.status.reason, first.status.bound_pods) == ("Malformed", [])
    assert second.status.bound_pods == ["g1-0", "g1-1"]


def test_the_bound_pods_of_a_statement_that_failed_elsewhere_count_as_bound() -> None:
    """For example a part with all pods bound, if another part has lost a pod."""
    lost_elsewhere = {key: value for key, value in FAILED.items() if key != "unboundPods"}
    read = msgspec.convert(
        {"statements": [{"id": "g0", **lost_elsewhere}], "phase": "Failed"},
        BindRequestStatus,
    )

    (found,) = msgspec.structs.replace(stored(1), status=read).each()

    assert found.status.bound_pods == ["g0-0", "g0-1"]


def test_a_request_refused_as_a_whole_stays_refused_after_a_correction() -> None:
    refused = msgspec.convert(
        {"phase": "Failed", "reason": "Malformed", "message": "no", "completionTime": EARLY},
        BindRequestStatus,
    )

    for each in msgspec.structs.replace(stored(2), status=refused).each():
        assert each.is_final
        assert (each.status.reason, each.status.completion_time) == ("Malformed", EARLY)
        assert each.status.bound_pods == []
