"""BindRequests are read one Statement at a time."""

import msgspec
import pytest

from bindery.api.bindrequest import BindFailureReason
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement

POD = {"podName": "a", "podUID": "1", "selectedNode": "n"}
OTHER = {"podName": "b", "podUID": "2", "selectedNode": "m"}
STATEMENTS = [
    {"id": "s", "pods": [POD], "after": "r", "queue": "team", "minBound": 0, "priority": 7},
    {"id": "t", "pods": [OTHER], "podGroup": {"name": "g", "uid": "u"}},
]


def each(spec: dict[str, object], **status: object) -> tuple[CommittedStatement, ...]:
    metadata = {"name": "it", "namespace": "team", "uid": "x"}
    content = {"metadata": metadata, "spec": spec, "status": status}
    return msgspec.convert(content, BindRequest).each()


def test_a_statement_is_read_with_the_common_fields_of_its_request() -> None:
    one, two = each({"statements": STATEMENTS, "backoffLimit": 2, "fencingToken": 3})

    assert (one.spec.id, one.spec.after, one.spec.queue) == ("s", "r", "team")
    assert (one.spec.min_bound, one.spec.priority) == (0, 7)
    assert [pod.pod_uid for pod in one.spec.pods] == ["1"]
    assert two.spec.pod_group is not None
    for statement in (one, two):
        assert (statement.backoff_limit, statement.fencing_token) == (2, 3)
        assert (statement.metadata.name, statement.siblings) == ("it", ("s", "t"))
        assert statement.status.phase == "Pending"


def test_an_ended_statement_has_bound_all_pods_except_the_listed_ones() -> None:
    given_up = {"podName": "b", "podUID": "2", "node": "m", "reason": "NodeGone"}
    outcomes = [{"id": "s", "phase": "Succeeded"}, {"id": "t", "phase": "Failed"}]

    first, second = each(
        {"statements": STATEMENTS},
        statements=[outcomes[0], {**outcomes[1], "unboundPods": [given_up]}],
    )

    assert (first.status.bound_pods, second.status.bound_pods) == (["1"], [])


@pytest.mark.parametrize(
    ("phase", "expected"),
    [("Failed", ["Succeeded", "Failed"]), ("Binding", ["Succeeded", "Pending"])],
)
def test_a_statement_without_an_outcome_has_failed_if_its_request_has_failed(
    phase: str, expected: list[str]
) -> None:
    """As a binder leaves an invalid request."""
    reason = BindFailureReason.MALFORMED.value

    found = each(
        {"statements": STATEMENTS},
        statements=[{"id": "s", "phase": "Succeeded"}],
        phase=phase,
        reason=reason,
    )

    assert [request.status.phase for request in found] == expected
    assert found[1].status.bound_pods == []
    assert (found[1].status.reason == reason) is (phase == "Failed")


def test_withdrawn_statements_are_marked() -> None:
    found = each({"statements": STATEMENTS, "withdrawn": ["t"]})

    assert [request.is_withdrawn for request in found] == [False, True]


def test_an_object_without_statements_carries_nothing() -> None:
    assert each({}) == ()
    assert each({"pods": [POD], "statement": {"id": "s"}}) == ()
