"""Trees over nodes: the nodes of a domain, and single updates that lead to the same tree."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.kube.objects.topology import (
    HyperNode,
    HyperNodeSpec,
    LabelRequirement,
    LabelSelector,
    Member,
)
from bindery.kube.objects.watched import Meta
from bindery.scheduler.model.hypernodes import HyperNodeTree
from bindery.scheduler.model.trees import NOWHERE, LabelTree, Tree

LABELS = ("block", "rack", "host")
NODES = st.dictionaries(st.sampled_from(LABELS), st.sampled_from("123"), max_size=3)


def named(tree: Tree, rows: int) -> list[list[str]]:
    """Return for each level the names of the domains of `rows`; numbers differ between trees."""
    found = []
    for level in range(len(tree.levels)):
        domains, names = tree.domains(level), tree.names(level)
        padded = [int(domains[row]) if row < len(domains) else NOWHERE for row in range(rows)]
        found.append(["" if domain == NOWHERE else names[domain] for domain in padded])
    return found


def in_order(tree: Tree) -> list[list[str]]:
    return [
        [name for _, name in sorted(zip(tree.ranks(level), tree.names(level), strict=True)) if name]
        for level in range(len(tree.levels))
    ]


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | NODES), max_size=30))
def test_an_updated_tree_of_labels_equals_a_new_one(
    updates: list[tuple[int, dict[str, str] | None]],
) -> None:
    tree, rows = LabelTree(LABELS), dict[int, dict[str, str] | None]()
    for row, labels in updates:
        tree.put(row, labels)
        rows[row] = labels
    fresh = LabelTree(LABELS)
    for row in sorted(rows, reverse=True):
        fresh.put(row, rows[row])

    assert named(tree, 6) == named(fresh, 6)
    assert in_order(tree) == in_order(fresh)


@given(st.lists(NODES, max_size=8))
def test_a_node_is_in_the_domain_of_its_labels_from_the_top_down(
    nodes: list[dict[str, str]],
) -> None:
    tree = LabelTree(LABELS)
    for row, labels in enumerate(nodes):
        tree.put(row, labels)

    for row, labels in enumerate(nodes):
        for level in range(3):
            path = [labels.get(key, "") for key in LABELS[: level + 1]]
            expected = "/".join(path) if all(path) else ""
            assert named(tree, len(nodes))[level][row] == expected


def test_domains_are_in_the_order_of_the_numbers_at_the_end_of_their_names() -> None:
    tree = LabelTree(["rack"])
    for row, rack in enumerate(["r10", "r9", "r1", "x"]):
        tree.put(row, {"rack": rack})

    assert in_order(tree) == [["r1", "r9", "r10", "x"]]


def hyper_node(name: str, tier: int, *members: Member) -> HyperNode:
    return HyperNode(metadata=Meta(name=name), spec=HyperNodeSpec(tier=tier, members=list(members)))


def node(name: str) -> Member:
    return Member(name=name)


def child(name: str) -> Member:
    return Member(type="HyperNode", name=name)


def tree_of(*hyper_nodes: HyperNode, nodes: int = 4) -> HyperNodeTree:
    tree = HyperNodeTree()
    for each in hyper_nodes:
        tree.put(each)
    for row in range(nodes):
        tree.put_node(row, f"n{row}", {"spine": f"s{row % 2}"})
    tree.resolve()
    return tree


def test_hyper_nodes_contain_the_nodes_of_their_members() -> None:
    tree = tree_of(
        hyper_node("s0", 1, node("n0"), node("n1")),
        hyper_node("s1", 1, Member(regex="^n2$")),
        hyper_node("top", 3, child("s0"), child("s1")),
    )

    assert tree.levels == ["tier 3", "tier 1"]
    assert named(tree, 4) == [["top", "top", "top", ""], ["s0", "s0", "s1", ""]]
    assert tree.problems == {}


@pytest.mark.parametrize(
    ("selector", "rows"),
    [
        (LabelSelector(match_labels={"spine": "s1"}), [1, 3]),
        (
            LabelSelector(
                match_expressions=[LabelRequirement(key="spine", operator="NotIn", values=["s1"])]
            ),
            [0, 2],
        ),
    ],
)
def test_a_selector_selects_members_by_labels(selector: LabelSelector, rows: list[int]) -> None:
    (names,) = named(tree_of(hyper_node("s", 1, Member(selector=selector))), 4)

    assert [row for row, name in enumerate(names) if name] == rows


@pytest.mark.parametrize(
    ("hyper_nodes", "problems"),
    [
        (
            [hyper_node("a", 1, child("b")), hyper_node("b", 2, child("a"))],
            {"a": "a cycle", "b": "a cycle"},
        ),
        ([hyper_node("a", 1, child("a"))], {"a": "a cycle"}),
        ([hyper_node("a", 1, Member(regex="("))], {"a": "regular expression ( is invalid"}),
        ([hyper_node("a", 2, child("gone"))], {"a": "its member gone does not exist"}),
        (
            [hyper_node("a", 1, child("b")), hyper_node("b", 1)],
            {"a": "the tier of its member b is not below its own"},
        ),
        (
            [hyper_node("a", 2, child("c")), hyper_node("b", 2, child("c")), hyper_node("c", 1)],
            {"b": "its member c belongs to a already"},
        ),
        (
            [hyper_node("a", 1, node("n0")), hyper_node("b", 1, node("n0"))],
            {"b": "its node n0 belongs to a already"},
        ),
        ([hyper_node("a", 1, Member())], {"a": "exactly one of name, regex and selector"}),
        (
            [hyper_node("a", 2, Member(type="HyperNode", selector=LabelSelector()))],
            {"a": "members of type HyperNode have no selector"},
        ),
    ],
)
def test_invalid_hyper_nodes_are_reported_and_the_others_are_used(
    hyper_nodes: list[HyperNode], problems: dict[str, str]
) -> None:
    tree = tree_of(*hyper_nodes, hyper_node("good", 1, node("n3")))

    assert tree.problems.keys() == problems.keys()
    for name, text in problems.items():
        assert re.search(re.escape(text), tree.problems[name])
    assert named(tree, 4)[-1][3] == "good"


@st.composite
def hyper_nodes(draw: st.DrawFn) -> HyperNode:
    name = draw(st.sampled_from("abcd"))
    members = draw(
        st.lists(
            st.sampled_from([node("n0"), node("n1"), Member(regex="n[23]"), *map(child, "abcd")]),
            max_size=3,
        )
    )
    return hyper_node(name, draw(st.integers(1, 3)), *members)


Steps = list[HyperNode | str | tuple[int, bool]]


@given(
    st.lists(
        hyper_nodes() | st.sampled_from("abcd") | st.tuples(st.integers(0, 3), st.booleans()),
        max_size=15,
    )
)
def test_an_updated_tree_of_hyper_nodes_equals_a_new_one(
    steps: Steps,
) -> None:
    tree, known, rows = HyperNodeTree(), dict[str, HyperNode](), set[int]()
    for step in steps:
        if isinstance(step, HyperNode):
            tree.put(step)
            known[step.metadata.name] = step
        elif isinstance(step, str):
            tree.remove(step)
            known.pop(step, None)
        elif step[1]:
            tree.put_node(step[0], f"n{step[0]}", {})
            rows.add(step[0])
        else:
            tree.remove_node(step[0])
            rows.discard(step[0])
        tree.resolve()
    fresh = HyperNodeTree()
    for row in rows:
        fresh.put_node(row, f"n{row}", {})
    for name in sorted(known, reverse=True):
        fresh.put(known[name])
    fresh.resolve()

    assert tree.levels == fresh.levels
    assert named(tree, 4) == named(fresh, 4)
    assert in_order(tree) == in_order(fresh)
