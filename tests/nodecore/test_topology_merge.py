"""Merging hints: the fold equals all combinations, and each policy admits by its rule."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.machine import uniform
from bindery.nodecore.masks import iterate, mask_of, narrowness, nodes_of
from bindery.nodecore.topology.hints import Hint, ProviderHints
from bindery.nodecore.topology.manager import TopologyManager
from bindery.nodecore.topology.merge import filtered, merge, widest_minimum
from bindery.nodecore.topology.numa import NumaInfo, numa_info
from bindery.nodecore.topology.options import TopologyOptions, parse
from bindery.nodecore.topology.policies import (
    BEST_EFFORT,
    NONE,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    merge_hints,
)
from bindery.nodecore.topology.subsets import all_ands

TWO = NumaInfo((0, 1))


@given(st.data(), st.integers(1, 9), st.integers(1, 6))
def test_the_intersections_of_tables_equal_all_combinations(
    data: st.DataObject, nodes: int, count: int
) -> None:
    masks = st.sets(st.integers(1, (1 << nodes) - 1), max_size=4)
    sets = data.draw(st.lists(masks, min_size=count, max_size=count))
    tables = [np.isin(np.arange(1 << nodes), sorted(each)) for each in sets]

    found = all_ands(tables, nodes)

    ands = {reduce(lambda one, other: one & other, each) for each in product(*sets)}
    assert set(np.flatnonzero(found)) - {0} == ands - {0}


@pytest.mark.parametrize("nodes", [8, 9, 16])
def test_intersections_of_full_tables_do_not_overflow(nodes: int) -> None:
    full = np.ones(1 << nodes, np.bool_)

    found = all_ands([full] * 5, nodes)

    assert found[1:].all()


def hint(*nodes: int, preferred: bool = True) -> Hint:
    return Hint(mask_of(nodes), preferred)


def of_all_combinations(numa: NumaInfo, resources: Sequence[Sequence[Hint]]) -> Hint:
    """Return the best hint as the kubelet finds it: one combination after the other."""
    best: Hint | None = None
    fewest = widest_minimum(resources)
    for combination in product(*resources):
        named = [one.mask for one in combination if one.mask is not None]
        mask = reduce(lambda one, other: one & other, named, numa.everything)
        preferred = all(one.preferred for one in combination) and len(set(named)) <= 1
        if mask and (best is None or is_better(Hint(mask, preferred), best, fewest)):
            best = Hint(mask, preferred)
    return best or Hint(numa.everything, preferred=False)


def is_better(one: Hint, other: Hint, fewest: int) -> bool:
    assert one.mask is not None
    assert other.mask is not None
    if one.preferred != other.preferred:
        return one.preferred
    count, current = one.mask.bit_count(), other.mask.bit_count()
    narrower = narrowness(one.mask) < narrowness(other.mask)
    if one.preferred or current > fewest:
        return narrower
    if current == fewest:
        return count == fewest and narrower
    if count >= fewest:
        return count == fewest
    return count > current or (count == current and narrower)


nodes = st.lists(st.integers(0, 63), min_size=1, max_size=5, unique=True).map(sorted)


@st.composite
def resources_of(draw: st.DrawFn) -> tuple[NumaInfo, list[list[Hint]]]:
    numa = NumaInfo(tuple(draw(nodes)))
    masks = st.one_of(st.none(), st.sampled_from(list(iterate(numa.nodes))))
    hints = st.builds(Hint, masks, st.booleans())
    return numa, draw(st.lists(st.lists(hints, max_size=5), max_size=4))


@given(resources_of())
def test_the_fold_equals_the_search_over_all_combinations(
    found: tuple[NumaInfo, list[list[Hint]]],
) -> None:
    numa, resources = found

    assert merge(numa, resources) == of_all_combinations(numa, resources)


def test_machines_with_many_numa_nodes_are_merged_without_tables() -> None:
    numa = NumaInfo(tuple(range(40)))
    resources = [[hint(0, 1, 39, preferred=False)], [hint(1, 2, 39), hint(39)]]

    assert merge(numa, resources) == hint(1, 39, preferred=False)


@pytest.mark.parametrize(
    ("providers", "policy", "expected", "admit"),
    [
        ([], BEST_EFFORT, hint(0, 1), True),
        ([{}], RESTRICTED, hint(0, 1), True),
        ([{"gpu": None}], RESTRICTED, hint(0, 1), True),
        ([{"gpu": []}], BEST_EFFORT, hint(0, 1, preferred=False), True),
        ([{"gpu": []}], RESTRICTED, hint(0, 1, preferred=False), False),
        ([{"cpu": [hint(0)]}, {"gpu": [hint(0)]}], RESTRICTED, hint(0), True),
        ([{"cpu": [hint(0)]}, {"gpu": [hint(1)]}], RESTRICTED, hint(0, 1, preferred=False), False),
        ([{"cpu": [hint(0)]}, {"gpu": [hint(0, 1)]}], BEST_EFFORT, hint(0, preferred=False), True),
        ([{"cpu": [hint(0), hint(1)]}, {"gpu": [hint(1)]}], SINGLE_NUMA_NODE, hint(1), True),
        ([{"cpu": [hint(0, 1)]}], RESTRICTED, hint(0, 1), True),
        ([{"cpu": [hint(0, 1)]}], SINGLE_NUMA_NODE, Hint(None, preferred=False), False),
        ([{}], SINGLE_NUMA_NODE, Hint(None, preferred=True), True),
        ([{"cpu": []}], NONE, Hint(None, preferred=False), True),
    ],
)
def test_policies_admit_by_their_rule(
    providers: list[ProviderHints], policy: str, expected: Hint, *, admit: bool
) -> None:
    merged = merge_hints(policy, TWO, providers)

    assert (merged.hint, merged.admit) == (expected, admit)


def test_distances_decide_between_sets_of_the_same_size() -> None:
    far, near = (10, 40, 40, 12), (40, 10, 12, 40)
    numa = NumaInfo((0, 1, 2, 3), {0: far, 1: near, 2: (40, 12, 10, 40), 3: (12, 40, 40, 10)})
    providers: list[ProviderHints] = [{"cpu": [hint(0, 1), hint(1, 2)]}]

    closest = merge_hints(BEST_EFFORT, numa, providers, TopologyOptions(prefer_closest=True))
    assert closest.hint == hint(1, 2)
    assert merge_hints(BEST_EFFORT, numa, providers).hint == hint(0, 1)


def test_a_resource_without_hints_does_not_restrict_the_merge() -> None:
    assert filtered([None, {"gpu": None, "nic": []}]) == [
        [Hint(None, preferred=True)],
        [Hint(None, preferred=True)],
        [Hint(None, preferred=False)],
    ]


def test_more_than_eight_numa_nodes_are_refused_unless_allowed() -> None:
    machine = uniform(sockets=9, cores_per_numa=1)

    with pytest.raises(ConfigurationError, match="machines with more than 8 NUMA Nodes"):
        TopologyManager(machine.nodes, RESTRICTED)
    TopologyManager(machine.nodes, NONE)
    TopologyManager(machine.nodes, RESTRICTED, options=parse({"max-allowable-numa-nodes": "9"}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max-allowable-numa-nodes": "7"}, "should not be less than 8"),
        ({"max-allowable-numa-nodes": "x"}, "unable to convert policy option to integer"),
        ({"prefer-closest-numa-nodes": "maybe"}, "bad value for option"),
        ({"other": "true"}, "unknown Topology Manager Policy option"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse(options)


@pytest.mark.parametrize("text", [" 9", "1_0", "\uff19", "9" * 40])
def test_counts_of_numa_nodes_are_parsed_as_in_go(text: str) -> None:
    with pytest.raises(ConfigurationError, match="unable to convert policy option to integer"):
        parse({"max-allowable-numa-nodes": text})


def test_distances_without_a_numa_node_are_refused() -> None:
    nodes = [replace(node, distances=(10,)) for node in uniform(sockets=2).nodes]

    assert numa_info(nodes, with_distances=False) == TWO
    with pytest.raises(ConfigurationError, match="error getting NUMA distances from cadvisor"):
        numa_info(nodes, with_distances=True)


def test_unknown_names_are_refused() -> None:
    machine = uniform()

    with pytest.raises(ConfigurationError, match='unknown policy: "strict"'):
        TopologyManager(machine.nodes, "strict")
    with pytest.raises(ConfigurationError, match='unknown scope: "node"'):
        TopologyManager(machine.nodes, RESTRICTED, "node")


@given(nodes)
def test_masks_contain_the_ids_they_are_built_from(ids: list[int]) -> None:
    assert nodes_of(mask_of(ids)) == tuple(ids)


def test_ids_beyond_the_mask_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="must be in range 0-63"):
        mask_of([64])


def test_masks_are_tried_from_the_smallest() -> None:
    assert list(iterate([0, 1, 3])) == [0b1, 0b10, 0b1000, 0b11, 0b1001, 0b1010, 0b1011]
