"""The effect of past usage on the division of a cluster, by the formula and in general."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.scheduler.fairness.division import Amounts, Demand, QueueTree
from tests.scheduler.fairness.test_fair_shares import MOST, amounts, divide, divisions

usages = st.sampled_from([0.0, 0.1, 0.25, 0.4, 0.75, 1.0])
k_values = st.sampled_from([0.5, 1.0, 2.0, 5.0])


def siblings(queues: int) -> QueueTree:
    return QueueTree(
        parent=np.full(queues, -1, dtype=np.intp),
        priority=np.full(queues, 100, dtype=np.int64),
        seniority=np.arange(queues, dtype=np.int64),
    )


def over_quota(weight: list[float], usage: list[float], request: list[float]) -> Demand:
    """Return the demand of queues that have no quota and no limit."""
    row = np.array([request])
    return Demand(
        quota=np.zeros_like(row),
        weight=np.array([weight]),
        limit=np.full_like(row, np.inf),
        request=row,
        usage=np.array([usage]),
    )


# s = w + k * (w - usage), at least 0, w = weight / sum of weights; slice = total * s / sum of s
@pytest.mark.parametrize(
    ("weight", "usage", "k_value", "total", "shares"),
    [
        # s: 0.5 and 1.0: 3.33 and 6.67, the rest to the larger fraction
        ([1, 1], [0.5, 0.0], 1.0, 10, [3, 7]),
        # s is 0.25 and 1.0
        ([1, 1], [0.75, 0.0], 1.0, 10, [2, 8]),
        # s is 0 and 1.0
        ([1, 1], [1.0, 0.0], 1.0, 10, [0, 10]),
        # s: 0.5 - 1.5 < 0, so 0, and 0.5 + 3 * (0.5 - 0.2) = 1.4
        ([1, 1], [1.0, 0.2], 3.0, 10, [0, 10]),
        # s: 0.75 + 0.75 = 1.5 and 0.25 + 0 = 0.25: 17.14 and 2.86
        ([3, 1], [0.0, 0.25], 1.0, 20, [17, 3]),
        # just what the weights are worth has been used: as without usage
        ([3, 1], [0.75, 0.25], 1.0, 20, [15, 5]),
        # w = 1/3; s: 1/3 + 0.5 * (1/3 - 0.6) = 0.2, 0.4 and 0.5, of 1.1
        ([1, 1, 1], [0.6, 0.2, 0.0], 0.5, 110, [20, 40, 50]),
    ],
)
def test_shares_follow_the_formula_as_worked_by_hand(
    weight: list[float], usage: list[float], k_value: float, total: float, shares: list[float]
) -> None:
    demand = over_quota(weight, usage, [1000.0] * len(weight))

    share = divide(siblings(len(weight)), demand, total, k_value)

    assert share[0].tolist() == shares


def test_a_satisfied_queue_changes_the_reference_of_the_others_usage() -> None:
    demand = over_quota([1, 1, 1], [0.0, 0.5, 0.0], [1.0, 100.0, 100.0])

    share = divide(siblings(3), demand, 12, 1.0)[0]

    # Round 1, w = 1/3, s = 0.667, 0.167 and 0.667 of 1.5: 1, floor(1.33) and floor(5.33) of 12.
    # Round 2, w = 1/2, s = 0.5 and 1: floor(1.67) and floor(3.33) of 5, the rest by fraction.
    assert share.tolist() == [1, 3, 8]


@given(divisions(deep=True), amounts, k_values)
def test_k_has_no_effect_without_past_usage(
    division: tuple[QueueTree, Demand], total: float, k_value: float
) -> None:
    tree, demand = division
    unused = replace(demand, usage=np.zeros_like(demand.usage))

    share = divide(tree, unused, total, k_value)

    np.testing.assert_allclose(share, divide(tree, unused, total, k_value=0.0))


@given(divisions(deep=True), amounts)
def test_usage_has_no_effect_if_k_is_0(division: tuple[QueueTree, Demand], total: float) -> None:
    tree, demand = division
    unused = replace(demand, usage=np.zeros_like(demand.usage))

    share = divide(tree, demand, total, k_value=0.0)

    np.testing.assert_array_equal(share, divide(tree, unused, total, k_value=0.0))


def more_used(demand: Demand, queue: int, more: float) -> Demand:
    usage: Amounts = demand.usage.copy()
    usage[0, queue] += more
    return replace(demand, usage=usage)


@given(st.data(), st.integers(2, 6), amounts, k_values)
def test_more_usage_gives_no_larger_share_among_queues_that_request_everything(
    data: st.DataObject, queues: int, total: float, k_value: float
) -> None:
    weight = data.draw(st.lists(st.sampled_from([1.0, 2.0, 3.5]), min_size=queues, max_size=queues))
    usage = data.draw(st.lists(usages, min_size=queues, max_size=queues))
    demand = over_quota(weight, usage, [2.0 * MOST] * queues)
    queue = data.draw(st.integers(0, queues - 1))
    more = data.draw(st.sampled_from([0.05, 0.3, 1.0]))

    before = divide(siblings(queues), demand, total, k_value)[0, queue]
    after = divide(siblings(queues), more_used(demand, queue, more), total, k_value)[0, queue]

    # What cannot be divided goes to the largest fraction, which may be its now: one unit at most.
    assert after <= before + 1


@given(st.data(), amounts, k_values)
def test_more_usage_gives_no_larger_share_between_two_queues_with_any_requests(
    data: st.DataObject, total: float, k_value: float
) -> None:
    pair = st.lists(amounts, min_size=2, max_size=2)
    usage = data.draw(st.lists(usages, min_size=2, max_size=2))
    demand = over_quota([1.0, data.draw(st.sampled_from([1.0, 3.0]))], usage, data.draw(pair))
    more = data.draw(st.sampled_from([0.05, 0.3, 1.0]))

    before = divide(siblings(2), demand, total, k_value)[0, 0]
    after = divide(siblings(2), more_used(demand, 0, more), total, k_value)[0, 0]

    assert after <= before + 1


@given(divisions(deep=True), amounts, k_values, st.data())
def test_usage_never_changes_the_amount_within_the_quota(
    division: tuple[QueueTree, Demand], total: float, k_value: float, data: st.DataObject
) -> None:
    tree, demand = division
    demand = replace(demand, quota=np.where(np.isinf(demand.quota), 0.0, demand.quota))
    queue = data.draw(st.integers(0, len(tree.parent) - 1))

    share = divide(tree, more_used(demand, queue, 5.0), total, k_value)[0, queue]

    wanted = min(demand.limit[0, queue], demand.request[0, queue])
    assert share >= min(demand.quota[0, queue], wanted)
