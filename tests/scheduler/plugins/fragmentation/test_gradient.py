"""The measure of fragmentation: by hand, against a plain function, and after updates."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bindery.scheduler.plugins.fragmentation.gradient import (
    CPU_SLACK,
    NO_DEVICE,
    NO_PLACE,
    Ask,
    NodeColumns,
    TypicalWorkload,
    buckets,
    fragmentation,
    growth,
)
from bindery.scheduler.plugins.fragmentation.table import GrowthTable
from tests.sizes import examples

Kind = tuple[int, int, int, int]
"""Weight, milli cores, milli GPUs of each device, devices."""
Node = tuple[Sequence[int], int]
"""The free milli GPUs of each device, and the free milli cores."""


def workload(*kinds: Kind) -> TypicalWorkload:
    weight, cpu, portion, devices = np.array(kinds, dtype=np.int64).reshape(-1, 4).T
    return TypicalWorkload(weight, cpu, portion, devices, whole=1000)


def columns(
    nodes: Sequence[Node], kinds: int, barred: Sequence[tuple[int, int]] = ()
) -> NodeColumns:
    free = np.zeros((max(len(devices) for devices, _ in nodes), len(nodes)), dtype=np.int64)
    for at, (devices, _) in enumerate(nodes):
        free[: len(devices), at] = devices
    allowed = np.ones((kinds, len(nodes)), dtype=np.bool_)
    for kind, node in barred if kinds else ():
        allowed[kind % kinds, node % len(nodes)] = False
    return NodeColumns(free, np.array([cpu for _, cpu in nodes]), allowed)


HALF, WHOLE = (1, 1000, 500, 1), (1, 1000, 1000, 1)
PAIR, CPU_ONLY = (1, 1000, 1000, 2), (1, 1, 0, 0)

BY_HAND = [
    # kinds, free devices, free CPU, F
    pytest.param([HALF], [1000, 500], 4000, 0, id="every free part is usable"),
    pytest.param([HALF], [1000, 400], 4000, 400, id="a part below the request is lost"),
    pytest.param([HALF], [1000, 500], 999, 1500, id="without CPU all is lost"),
    pytest.param([HALF], [1000] * 3, 1999, 1000, id="CPU for one pod serves two shared GPUs"),
    pytest.param([WHOLE], [1000] * 4, 1500, 2000, id="CPU for one pod serves two GPUs"),
    pytest.param([(1, 0, 500, 1)], [1000, 1000], 0, 0, id="a kind without CPU needs none"),
    pytest.param([WHOLE], [1000, 999], 4000, 999, id="a whole GPU needs a whole one"),
    pytest.param([PAIR], [1000, 999], 4000, 1999, id="one of two GPUs is no use"),
    pytest.param([PAIR], [1000, 1000, 300], 4000, 300, id="two of three GPUs"),
    pytest.param([CPU_ONLY], [1000, 200], 4000, 1200, id="a kind without GPUs uses none"),
    pytest.param([HALF, WHOLE], [1000, 600], 4000, 600, id="the sum over the kinds"),
    pytest.param([(3, 1000, 1000, 1), HALF], [700], 4000, 2100, id="weighted"),
    pytest.param([HALF], [0, 0], 4000, 0, id="nothing free, nothing lost"),
]


@pytest.mark.parametrize(("kinds", "free", "cpu", "expected"), BY_HAND)
def test_the_fragmentation_of_one_node_is_as_worked_by_hand(
    kinds: Sequence[Kind], free: Sequence[int], cpu: int, expected: int
) -> None:
    assert fragmentation(workload(*kinds), columns([(free, cpu)], len(kinds))) == [expected]


def test_gpus_of_a_node_that_a_kind_may_not_use_are_fragmented_for_it() -> None:
    nodes = columns([([1000], 4000)] * 2, 1, barred=[(0, 1)])
    assert fragmentation(workload(HALF), nodes).tolist() == [0, 1000]


GROWTHS = [
    # kinds, free devices, free CPU, request, growth, device
    pytest.param([WHOLE], [1000, 500], 4000, (500, 1), -500, 1, id="the rest of a shared GPU"),
    pytest.param([WHOLE], [1000], 4000, (500, 1), 500, 0, id="half of the last whole GPU"),
    pytest.param([HALF], [1000, 600], 4000, (300, 1), 0, 0, id="a place that leaves a half"),
    pytest.param([PAIR], [1000, 1000], 4000, (1000, 1), 1000, 0, id="breaks a pair"),
    pytest.param([PAIR], [1000, 1000, 1000], 4000, (1000, 1), 0, 0, id="a pair remains"),
    pytest.param([WHOLE], [1000, 1000], 2500, (1000, 1), 0, 0, id="takes CPU, and leaves enough"),
    pytest.param([WHOLE], [1000, 1000], 1500, (1000, 1), 1000, 0, id="leaves a GPU without CPU"),
    pytest.param([HALF], [400, 300], 4000, (500, 1), NO_PLACE, NO_DEVICE, id="no device"),
    pytest.param([HALF], [1000], 500, (500, 1), NO_PLACE, NO_DEVICE, id="no CPU"),
    pytest.param([HALF], [500, 500, 700], 4000, (200, 2), 600, 0, id="the tightest two"),
]


@pytest.mark.parametrize(("kinds", "free", "cpu", "request_", "grown", "device"), GROWTHS)
def test_the_growth_on_one_node_is_as_worked_by_hand(
    kinds: Sequence[Kind],
    free: Sequence[int],
    cpu: int,
    request_: tuple[int, int],
    grown: int,
    device: int,
) -> None:
    nodes = columns([(free, cpu)], len(kinds))
    found = growth(workload(*kinds), nodes, Ask(1000, *request_))
    assert (found[0].tolist(), found[1].tolist()) == ([grown], [device])


def test_buckets_have_a_step_of_about_40_milli_gpus_and_equal_scores_within_it() -> None:
    grown = np.array([-1000, -41, -1, 0, 1, 39, 41, 1000, NO_PLACE])
    assert buckets(grown, 1000).tolist() == [73, 51, 50, 50, 49, 49, 48, 26, 0]


# ---- properties --------------------------------------------------------------------------------

parts = st.sampled_from([0, 100, 250, 400, 500, 750, 1000])
some_nodes = st.lists(
    st.tuples(st.lists(parts, min_size=1, max_size=4), st.integers(-2000, 9000)),
    min_size=1,
    max_size=6,
)
requests = st.one_of(
    st.tuples(st.sampled_from([100, 250, 333, 500, 1000]), st.integers(1, 3)), st.just((0, 0))
)
some_kinds = st.lists(
    st.tuples(st.integers(1, 50), st.integers(0, 6000), requests).map(lambda k: (*k[:2], *k[2])),
    max_size=5,
)
some_barred = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), max_size=4)
some_asks = st.tuples(
    st.integers(0, 5000), st.sampled_from([100, 300, 500, 1000]), st.integers(1, 3)
).map(lambda ask: Ask(*ask))


def lost_plainly(work: TypicalWorkload, nodes: NodeColumns, node: int) -> int:
    """Return F of a node by its definition, one device at a time."""
    lost, free = 0, [int(part) for part in nodes.free[:, node]]
    kinds = zip(work.weight, work.cpu, work.portion, work.devices, strict=True)
    for kind, (weight, cpu, portion, devices) in enumerate(kinds):
        runs = portion > 0 and nodes.allowed[kind, node] and nodes.cpu[node] >= cpu
        runs = runs and sum(part >= portion for part in free) >= devices
        usable = sum(part for part in free if part >= portion) if runs else 0
        if runs and cpu:
            pods = int(nodes.cpu[node] // cpu)
            usable = min(usable, CPU_SLACK * pods * int(devices) * 1000)
        lost += int(weight) * (sum(free) - usable)
    return lost


def growth_plainly(work: TypicalWorkload, nodes: NodeColumns, node: int, ask: Ask) -> int:
    """Return the least growth over the places on one node, each tried by itself."""
    fits = [d for d, part in enumerate(nodes.free[:, node]) if part >= ask.portion]
    if len(fits) < ask.devices or nodes.cpu[node] < ask.cpu:
        return NO_PLACE
    tightest = sorted(fits, key=lambda device: nodes.free[device, node])[: ask.devices]
    grown = []
    for devices in [[d] for d in fits] if ask.devices == 1 else [tightest]:
        after = nodes.take(np.array([node]))
        after.free[devices, 0] -= ask.portion
        after.cpu[0] -= ask.cpu
        grown.append(lost_plainly(work, after, 0) - lost_plainly(work, nodes, node))
    return min(grown)


@settings(max_examples=examples(70))
@given(some_nodes, some_kinds, some_barred, some_asks)
def test_vectors_equal_a_plain_function(
    states: list[Node], kinds: list[Kind], barred: list[tuple[int, int]], ask: Ask
) -> None:
    work, nodes = workload(*kinds), columns(states, len(kinds), barred)

    assert fragmentation(work, nodes).tolist() == [
        lost_plainly(work, nodes, node) for node in range(nodes.count)
    ]
    grown, devices = growth(work, nodes, ask)
    assert grown.tolist() == [growth_plainly(work, nodes, n, ask) for n in range(nodes.count)]
    assert ((devices == NO_DEVICE) == (grown == NO_PLACE)).all()


@settings(max_examples=examples(70))
@given(
    some_nodes,
    some_kinds,
    st.lists(
        st.tuples(st.integers(0, 5), st.lists(parts, min_size=1, max_size=4), st.integers(0, 9000)),
        max_size=8,
    ),
    st.lists(some_asks, min_size=1, max_size=3),
    st.integers(1, 6),
)
def test_an_updated_table_equals_a_new_one(
    states: list[Node],
    kinds: list[Kind],
    changes: list[tuple[int, list[int], int]],
    asks: list[Ask],
    most_states: int,
) -> None:
    work, nodes = workload(*kinds), columns(states, len(kinds))
    table = GrowthTable(work, nodes.take(np.arange(nodes.count)), most_states)
    rows = np.arange(nodes.count)
    for node, devices, cpu in changes:
        row = node % nodes.count
        nodes.free[:, row] = np.resize([*devices, 0, 0, 0, 0], len(nodes.free))
        nodes.cpu[row] = cpu
        table.update(np.array([row]), nodes.take(np.array([row])))
        for ask in asks:
            grown = growth(work, nodes, ask)[0]
            assert table.growths(ask, rows).tolist() == grown.tolist()
            unit = max(work.total_weight, 1) * work.whole
            assert table.buckets(ask, rows).tolist() == buckets(grown, unit).tolist()
    assert table.lost.tolist() == fragmentation(work, nodes).tolist()


@settings(max_examples=examples(35))
@given(some_nodes, some_kinds, st.data())
def test_a_share_by_memory_is_a_different_portion_on_each_node(
    states: list[Node], kinds: list[Kind], data: st.DataObject
) -> None:
    work, nodes = workload(*kinds), columns(states, len(kinds))
    portions = data.draw(
        st.lists(st.integers(1, 1000), min_size=nodes.count, max_size=nodes.count).map(np.array)
    )
    rows = np.array(data.draw(st.permutations(range(nodes.count))))
    table = GrowthTable(work, nodes.take(np.arange(nodes.count)))

    found = table.growths(Ask(1000, portions[rows]), rows)

    expected = [growth_plainly(work, nodes, row, Ask(1000, int(portions[row]))) for row in rows]
    assert found.tolist() == expected
    again = rows[::2]
    assert table.growths(Ask(1000, portions[again]), again).tolist() == expected[::2]
