"""BindRequests are read one Statement at a time, from either form."""

import msgspec
import pytest

from bindery.api.bindrequest import BindFailureReason
from bindery.kube.bindrequests import BindRequest, CommittedStatement

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


def test_the_old_form_and_the_new_form_say_the_same() -> None:
    statement, *_ = STATEMENTS
    rest = {key: value for key, value in statement.items() if key not in ("id", "after")}
    common = {"backoffLimit": 2, "fencingToken": 3}
    (old,) = each({**rest, **common, "statement": {"id": "s", "after": "r"}})

    (new,) = each({"statements": [statement], **common})

    assert (new.metadata, new.spec, new.status) == (old.metadata, old.spec, old.status)
    assert (new.siblings, old.siblings) == (("s",), ())


def test_a_statement_that_has_ended_has_bound_all_pods_but_those_that_it_lists() -> None:
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
def test_a_statement_without_an_outcome_has_failed_if_the_whole_request_has(
    phase: str, expected: list[str]
) -> None:
    """As a binder leaves it that does not know the new form."""
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


def test_an_object_of_neither_form_carries_nothing() -> None:
    assert each({}) == ()
