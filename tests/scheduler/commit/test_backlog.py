"""The choice of waiting Statements that share the next request."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.scheduler.commit.backlog import (
    MOST_PODS,
    Backlog,
    Parts,
    StatementId,
    identity,
    prerequisite,
)
from tests.scheduler.drafted import draft
from tests.scheduler.statementlists import NAMESPACES, statement_lists
from tests.sizes import examples


def backlog_of(*statements: Parts) -> Backlog:
    backlog = Backlog()
    for parts in statements:
        backlog.add(parts)
    return backlog


def names(chosen: list[Parts]) -> list[str]:
    return [identity(parts[0]).id.removesuffix("-1") for parts in chosen]


def requests_of(backlog: Backlog, most: int = 50) -> list[list[str]]:
    """Return the Statements of all requests, if each is written before the next is chosen."""
    found = []
    while chosen := backlog.take((), most):
        found.append(names(chosen))
    return found


def one(name: str, **fields: Any) -> Parts:
    return (draft(name, **fields),)


def split(name: str, **fields: Any) -> Parts:
    return tuple(draft(name, part=part, parts=3, **fields) for part in range(3))


CASES: dict[str, tuple[list[Parts], list[list[str]]]] = {
    "nothing waits": ([], []),
    "one namespace shares": ([one("a"), one("b"), one("c")], [["a", "b", "c"]]),
    "namespaces take turns and do not share": (
        [one("a"), one("b", namespace="other"), one("c")], [["a", "c"], ["b"]],
    ),
    "100 pods fit": ([one("a", pods=50), one("b", pods=50)], [["a", "b"]]),
    "101 pods do not fit": ([one("a", pods=50), one("b", pods=51)], [["a"], ["b"]]),
    "a small Statement does not overtake a large one": (
        [one("a", pods=60), one("b", pods=60), one("c")], [["a"], ["b", "c"]],
    ),
    "a large Statement has its own request": (
        [one("a", pods=300), one("b"), one("c")], [["a"], ["b", "c"]],
    ),
    "a split Statement is alone": ([one("a"), split("b"), one("c")], [["a"], ["b"], ["c"]]),
    "a split Statement is written first": ([split("a"), one("b")], [["a"], ["b"]]),
    "a prerequisite is in the same request": ([one("a"), one("b", after="a-1")], [["a", "b"]]),
    "a split prerequisite is written first": (
        [split("a"), one("b", after="a-1")], [["a"], ["b"]],
    ),
    "other annotations, another request": (
        [one("a"), one("b", annotations={"key": "value"}), one("c")], [["a"], ["b"], ["c"]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_statements_of_one_namespace_share_a_request(case: str) -> None:
    waiting, expected = CASES[case]

    assert requests_of(backlog_of(*waiting)) == expected


def test_a_request_carries_no_more_statements_than_configured() -> None:
    waiting = [one(name) for name in "abcde"]

    assert requests_of(backlog_of(*waiting), most=2) == [["a", "b"], ["c", "d"], ["e"]]
    assert requests_of(backlog_of(*waiting), most=1) == [[name] for name in "abcde"]


def test_a_statement_waits_until_its_prerequisite_has_been_written() -> None:
    backlog = backlog_of(one("b", after="a-1"), one("c", after="b-1"), one("d"))
    being_written = {StatementId("team", "a-1")}

    assert names(backlog.take(being_written, 50)) == ["d"]
    assert backlog.take(being_written, 50) == []
    assert names(backlog.take((), 50)) == ["b", "c"]


def test_a_prerequisite_of_another_namespace_is_another_statement() -> None:
    backlog = backlog_of(one("b", after="a-1"))

    assert names(backlog.take({StatementId("other", "a-1")}, 50)) == ["b"]


def test_only_dependents_of_a_refused_statement_are_dropped() -> None:
    backlog = backlog_of(
        one("b", after="a-1"), one("c"), one("d", after="b-1"), one("e", namespace="other")
    )

    dropped = backlog.drop_followers({StatementId("team", "a-1")})

    assert names(dropped) == ["b", "d"]
    assert StatementId("team", "b-1") not in backlog
    assert requests_of(backlog) == [["c"], ["e"]]


def test_a_namespace_without_statements_is_forgotten() -> None:
    backlog = backlog_of(one("b", after="a-1"))
    backlog.drop_followers({StatementId("team", "a-1")})
    backlog.add(one("c", namespace="other"))
    backlog.add(one("d"))

    assert requests_of(backlog) == [["c"], ["d"]], "team has lost its place"


def test_clearing_returns_everything() -> None:
    backlog = backlog_of(one("a"), split("b"), one("c", namespace="other"))

    assert sorted(names(backlog.clear())) == ["a", "b", "c"]
    assert requests_of(backlog) == []
    assert StatementId("team", "a-1") not in backlog


@given(statement_lists(), st.integers(1, 8), st.integers(1, 4), st.data())
@settings(max_examples=examples(35), deadline=None)
def test_each_statement_is_written_once_in_order_and_after_its_prerequisite(
    committed: list[Parts], most: int, places: int, data: st.DataObject
) -> None:
    """Requests end in any order; new Statements come at any time."""
    backlog, waiting = Backlog(), list(committed)
    in_flight: list[list[Parts]] = []
    written: set[StatementId] = set()
    begun: list[list[Parts]] = []
    while waiting or in_flight or backlog_has(backlog, committed):
        if len(waiting) > 0 and data.draw(st.booleans(), "one more is committed"):
            backlog.add(waiting.pop(0))
        being_written = {identity(parts[0]) for request in in_flight for parts in request}
        while len(in_flight) < places and (chosen := backlog.take(being_written, most)):
            check_request(chosen, most)
            for parts in chosen:
                before = prerequisite(parts[0])
                within = {identity(each[0]) for each in chosen[: chosen.index(parts)]}
                assert before is None or before in written | within
            in_flight.append(chosen)
            begun.append(chosen)
            being_written |= {identity(parts[0]) for parts in chosen}
        if in_flight:
            ended = in_flight.pop(data.draw(st.integers(0, len(in_flight) - 1), "this one ends"))
            written |= {identity(parts[0]) for parts in ended}
    order = [identity(parts[0]) for request in begun for parts in request]
    assert sorted(order) == sorted(identity(parts[0]) for parts in committed)
    if not any(prerequisite(parts[0]) for parts in committed):
        for namespace in NAMESPACES:
            mine = [each for each in order if each.namespace == namespace]
            assert mine == [
                identity(parts[0]) for parts in committed if parts[0].namespace == namespace
            ]


def backlog_has(backlog: Backlog, committed: list[Parts]) -> bool:
    return any(identity(parts[0]) in backlog for parts in committed)


def check_request(chosen: list[Parts], most: int) -> None:
    assert len(chosen) <= most
    assert len({parts[0].namespace for parts in chosen}) == 1
    if len(chosen) > 1:
        assert all(len(parts) == 1 for parts in chosen)
        assert sum(len(parts[0].spec.pods) for parts in chosen) <= MOST_PODS


@given(statement_lists())
@settings(max_examples=examples(18), deadline=None)
def test_no_namespace_waits_for_the_second_request_of_another(committed: list[Parts]) -> None:
    backlog = backlog_of(*committed)
    rounds: defaultdict[str, int] = defaultdict(int)
    while chosen := backlog.take((), 2):
        namespace = chosen[0][0].namespace
        rounds[namespace] += 1
        waits = [
            each
            for each in NAMESPACES
            if any(
                identity(parts[0]) in backlog for parts in committed if parts[0].namespace == each
            )
        ]
        assert all(rounds[namespace] <= rounds[each] + 1 for each in waits)
