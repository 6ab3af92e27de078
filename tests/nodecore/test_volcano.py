"""Volcano's numa-aware rules: policies over hints of CPUs and devices, CPUs, devices, scores."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.nodecore.cpu import volcano as provider
from bindery.nodecore.cpu.topology import CpuTopology, discover
from bindery.nodecore.cpusets import format_cpus
from bindery.nodecore.errors import ConfigurationError
from bindery.nodecore.machine import Core, Machine, NumaNode
from bindery.nodecore.masks import iterate, mask_of, narrowness
from bindery.nodecore.topology import policies, volcano
from bindery.nodecore.topology.hints import Hint
from bindery.nodecore.topology.numa import NumaInfo
from tests.nodecore.nodes import cpus

TWO = NumaInfo((0, 1))
MACHINE: CpuTopology = discover(
    Machine(
        tuple(
            NumaNode(node, [Core(node, (4 * node + core, 4 * node + core + 1)) for core in (0, 2)])
            for node in (0, 1)
        )
    )
)
"""Node 0: cores {0,1} {2,3}; node 1: {4,5} {6,7}."""


def hint(*nodes: int, preferred: bool) -> Hint:
    return Hint(mask_of(nodes), preferred)


BOTH = hint(0, 1, preferred=False)
EITHER = [BOTH, hint(0, preferred=True), hint(1, preferred=True)]
FIRST = [BOTH, hint(0, preferred=True)]
SECOND = [BOTH, hint(1, preferred=True)]
TOGETHER = [hint(0, 1, preferred=True)]


@pytest.mark.parametrize(
    ("cpu", "gpu", "merged", "single"),
    [
        (FIRST, FIRST, hint(0, preferred=True), hint(0, preferred=True)),
        (SECOND, SECOND, hint(1, preferred=True), hint(1, preferred=True)),
        (EITHER, EITHER, hint(0, preferred=True), hint(0, preferred=True)),
        (FIRST, SECOND, hint(0, preferred=False), BOTH),
        (FIRST, TOGETHER, hint(0, preferred=True), BOTH),  # the kubelet: not preferred
        (TOGETHER, TOGETHER, hint(0, 1, preferred=True), BOTH),
    ],
)
def test_hints_of_cpus_and_devices_are_merged(
    cpu: list[Hint], gpu: list[Hint], merged: Hint, single: Hint
) -> None:
    providers = [{"cpu": cpu}, {"nvidia.com/gpu": gpu}]

    best = volcano.merge_hints(policies.BEST_EFFORT, TWO, providers)
    assert (best.hint, best.admit) == (merged, True)
    restricted = volcano.merge_hints(policies.RESTRICTED, TWO, providers)
    assert (restricted.hint, restricted.admit) == (merged, merged.preferred)
    alone = volcano.merge_hints(policies.SINGLE_NUMA_NODE, TWO, providers)
    assert (alone.hint, alone.admit) == (single, single.preferred)


def test_every_node_is_feasible_without_a_policy() -> None:
    found = volcano.merge_hints(policies.NONE, TWO, [{"cpu": []}])

    assert (found.hint, found.admit) == (Hint(None, preferred=False), True)
    with pytest.raises(ConfigurationError, match='unknown policy: "other"'):
        volcano.merge_hints("other", TWO, ())


masks_of_three = st.sampled_from(list(iterate((0, 1, 2))))
resources = st.lists(
    st.lists(st.builds(Hint, st.none() | masks_of_three, st.booleans()), max_size=4), max_size=3
)


@given(resources)
def test_the_best_of_all_combinations_is_found(found: list[list[Hint]]) -> None:
    numa = NumaInfo((0, 1, 2))
    reached = []
    for combination in product(*found):
        mask = numa.everything
        for one in combination:
            mask &= numa.everything if one.mask is None else one.mask
        if mask:
            reached.append(Hint(mask, all(one.preferred for one in combination)))

    best = min(
        reached,
        key=lambda one: (not one.preferred, narrowness(one.mask or 0)),
        default=Hint(numa.everything, preferred=False),
    )
    assert volcano.merge(numa, found) == best


@pytest.mark.parametrize(
    ("count", "free", "expected"),
    [
        (4, "0-7", {hint(0, preferred=True), hint(1, preferred=True), BOTH}),
        (4, "1-7", {hint(1, preferred=True), BOTH}),
        (5, "0-7", {hint(0, 1, preferred=True)}),
        (8, "0-7", {hint(0, 1, preferred=True)}),
        (9, "0-7", set()),
        (4, "2-5", {BOTH}),
    ],
)
def test_cpus_have_hints(count: int, free: str, expected: set[Hint]) -> None:
    found = provider.hints(MACHINE, cpus(free), count)

    assert set(found or ()) == expected


@pytest.mark.parametrize(
    ("count", "free", "nodes", "taken"),
    [
        (4, "0-7", (0,), "0-3"),
        (4, "1-7", (1,), "4-7"),
        (5, "0-7", (0, 1), "0-4"),
        (5, "1-7", (0, 1), "1,4-7"),
        (8, "1-7", (0, 1), ""),
    ],
)
def test_cpus_are_taken_from_the_hinted_numa_nodes(
    count: int, free: str, nodes: tuple[int, ...], taken: str
) -> None:
    found = provider.take(MACHINE, cpus(free), count, mask_of(nodes))

    assert format_cpus(found) == taken


def test_reserved_cpus_are_left_out() -> None:
    free, reserved = cpus("0-7"), cpus("0-1")

    assert provider.hints(MACHINE, free, 4, reserved) == [hint(1, preferred=True), BOTH]
    assert format_cpus(provider.take(MACHINE, free, 2, mask_of([0]), reserved)) == "2-3"
    assert provider.hints(MACHINE, free, 0) is None


def test_devices_prefer_the_fewest_numa_nodes_with_free_devices() -> None:
    assert volcano.device_hints({0: 1, 1: 3}, 2) == [
        hint(1, preferred=True),
        hint(0, 1, preferred=False),
    ]
    assert volcano.device_hints({0: 1, 1: 1}, 2) == [hint(0, 1, preferred=True)]
    assert volcano.device_hints({0: 1, 1: 1}, 3) == []
    assert volcano.device_hints(dict.fromkeys(range(17), 1), 1) is None


def test_fewer_zones_have_a_better_score() -> None:
    assert volcano.scores({"a": 1, "b": 2, "c": 4}) == {"a": 75, "b": 50, "c": 0}
    assert volcano.scores({"a": 1, "b": 3}) == {"a": 67, "b": 0}
    assert volcano.scores({"a": 0}) == {"a": 100}
    assert volcano.scores({}) == {}
