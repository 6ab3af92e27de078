"""Selectors, affinity and taints have the same meaning as in kube-scheduler."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.kube.objects.podspec import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    Toleration,
)
from bindery.kube.objects.taints import tolerates
from bindery.kube.objects.watched import Taint
from tests.scheduler.schedulerworld import engine_with, node, plan, pod, report_of
from tests.sizes import examples

KEYS = ("a", "b")
VALUES = ("", "x", "y", "5", "12", "-3", "1_0", "007")
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
requirements = st.one_of(
    st.builds(
        NodeSelectorRequirement,
        key=st.sampled_from(KEYS),
        operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Odd"]),
        values=st.lists(st.sampled_from(VALUES), max_size=2),
    ),
)
fields = st.builds(
    NodeSelectorRequirement,
    key=st.just("metadata.name"),
    operator=st.sampled_from(["In", "NotIn"]),
    values=st.lists(st.sampled_from(["n0", "n1"]), min_size=1, max_size=1),
)
terms = st.builds(
    NodeSelectorTerm,
    match_expressions=st.lists(requirements, max_size=2),
    match_fields=st.lists(fields, max_size=1),
)


def go_integer(text: str) -> int | None:
    """Return what `strconv.ParseInt(text, 10, 64)` makes of a label value of the test."""
    digits = text.removeprefix("-")
    return int(text) if digits and all(c in "0123456789" for c in digits) else None


def matches(item: NodeSelectorRequirement, found: Mapping[str, str]) -> bool:
    """Return whether labels match, by the rules of `labels.Requirement.Matches` in apimachinery."""
    value, values = found.get(item.key), item.values or []
    numbers = [go_integer(text) for text in (value or "", *values)]
    left, right = numbers if len(numbers) == 2 else (None, None)
    answers = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
        "Gt": left is not None and right is not None and left > right,
        "Lt": left is not None and right is not None and left < right,
    }
    return answers.get(item.operator, False)


def selects(term: NodeSelectorTerm, name: str, found: Mapping[str, str]) -> bool:
    expressions, names = term.match_expressions or [], term.match_fields or []
    if not expressions and not names:
        return False
    return all(matches(item, found) for item in expressions) and all(
        matches(item, {"metadata.name": name}) for item in names
    )


@given(st.lists(labels, min_size=1, max_size=4), st.lists(terms, max_size=3), labels)
@settings(max_examples=examples(52), deadline=None)
def test_a_pod_is_placed_only_where_its_selector_and_affinity_allow(
    nodes: list[dict[str, str]], required: list[NodeSelectorTerm], selector: dict[str, str]
) -> None:
    selects_nodes = NodeSelector(node_selector_terms=required)
    affinity = Affinity(node_affinity=NodeAffinity(required=selects_nodes))
    asks = pod("p", cpu=5, node_selector=selector, affinity=affinity)
    engine = engine_with(*(node(f"n{i}", labels=found) for i, found in enumerate(nodes)), asks)
    allowed = {
        f"n{i}"
        for i, found in enumerate(nodes)
        if all(found.get(key) == value for key, value in selector.items())
        and any(selects(term, f"n{i}", found) for term in required)
    }

    planned = plan(engine)

    assert set(planned.values()) <= allowed
    assert bool(planned) == bool(allowed)


@given(st.lists(labels, min_size=2, max_size=4), st.lists(terms, min_size=1, max_size=3))
@settings(max_examples=examples(35), deadline=None)
def test_a_pod_is_placed_where_most_of_its_preferences_are_met(
    nodes: list[dict[str, str]], preferred: list[NodeSelectorTerm]
) -> None:
    weighed = [
        PreferredSchedulingTerm(weight=10**i, preference=term) for i, term in enumerate(preferred)
    ]
    asks = pod("p", affinity=Affinity(node_affinity=NodeAffinity(preferred=weighed)))
    engine = engine_with(*(node(f"n{i}", labels=found) for i, found in enumerate(nodes)), asks)
    worth = {
        f"n{i}": sum(t.weight for t in weighed if selects(t.preference, f"n{i}", found))
        for i, found in enumerate(nodes)
    }

    best = max(worth.values())
    assert plan(engine) == {"p": min(name for name in worth if worth[name] == best)}


HARD = Taint(key="k", value="v", effect="NoSchedule")
TOLERATIONS = [
    (Toleration(key="k", value="v"), True),
    (Toleration(key="k", value="v", operator=""), True),
    (Toleration(key="k", value="v", effect="NoSchedule"), True),
    (Toleration(key="k", value="v", effect="NoExecute"), False),
    (Toleration(key="k", value="w"), False),
    (Toleration(key="k"), False),
    (Toleration(key="k", operator="Exists"), True),
    (Toleration(key="j", operator="Exists"), False),
    (Toleration(operator="Exists"), True),
    (Toleration(operator="Exists", effect="NoExecute"), False),
    (Toleration(value="v"), False),
    (Toleration(key="k", operator="Gt", value="v"), False),
]


@pytest.mark.parametrize(("toleration", "covers"), TOLERATIONS)
def test_a_toleration_covers_a_taint(toleration: Toleration, covers: bool) -> None:
    assert tolerates((toleration,), HARD) is covers


@pytest.mark.parametrize(
    ("operator", "bound", "value", "covers"),
    [
        ("Gt", "5", "6", True),
        ("Gt", "5", "5", False),
        ("Lt", "5", "4", True),
        ("Lt", "-3", "-4", True),
        ("Lt", "5", "05", False),
        ("Gt", "x", "6", False),
        ("Gt", "5", "", False),
        ("Lt", "5", "-9223372036854775809", False),
    ],
)
def test_a_toleration_compares_numbers_of_taints(
    operator: str, bound: str, value: str, covers: bool
) -> None:
    toleration = Toleration(key="k", operator=operator, value=bound)
    assert tolerates([toleration], Taint(key="k", value=value, effect="NoSchedule")) is covers


@pytest.mark.parametrize(
    ("taint", "planned"),
    [
        (Taint(key="k", effect="NoSchedule"), False),
        (Taint(key="k", effect="NoExecute"), False),
        (Taint(key="k", effect="PreferNoSchedule"), True),
    ],
)
def test_only_hard_taints_exclude_pods(taint: Taint, planned: bool) -> None:
    assert bool(plan(engine_with(node("n", taints=[taint]), pod("p")))) is planned


def test_a_node_with_a_soft_taint_is_used_last() -> None:
    soft = node("a", taints=[Taint(key="k", effect="PreferNoSchedule")])

    assert plan(engine_with(soft, node("b"), pod("p"))) == {"p": "b"}


@pytest.mark.parametrize(
    ("reason", "item"),
    [
        ("1 are not ready", node("n", ready=False)),
        ("1 are cordoned", node("n", unschedulable=True)),
        ("1 had untolerated taint {k: v}", node("n", taints=[HARD])),
        ("1 do not match node selector disk=ssd", node("n", labels={"disk": "hdd"})),
        ("1 have less cpu in all than requested", node("n", cpu=1, labels={"disk": "ssd"})),
    ],
)
def test_a_pod_that_fits_no_node_reports_the_reasons(reason: str, item: object) -> None:
    engine = engine_with(item, pod("p", cpu=2, node_selector={"disk": "ssd"}))  # type: ignore[arg-type]  # a node

    assert plan(engine) == {}
    assert report_of(engine, "p").message == f"0/1 nodes are available: {reason}"


def test_reasons_are_ordered_by_nodes_and_each_node_counts_once() -> None:
    engine = engine_with(
        node("n1", cpu=1),
        node("n2", cpu=1, ready=False),
        node("n3", cpu=8),
        node("n4", cpu=1),
        pod("old", cpu=7, on="n3"),
        pod("p", cpu=2),
    )

    assert plan(engine) == {}
    assert report_of(engine, "p").message == (
        "0/4 nodes are available: 2 have less cpu in all than requested, "
        "1 are not ready, 1 insufficient cpu"
    )
