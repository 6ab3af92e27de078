"""Properties of the division of a cluster among queues, over random trees of queues."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bindery.scheduler.fairness.division import Amounts, Demand, QueueTree, fair_shares

UNIT = np.array([1.0])
MOST = 40
amounts = st.integers(0, MOST).map(float)


@st.composite
def demands(draw: st.DrawFn, queues: int) -> Demand:
    def row(values: st.SearchStrategy[float]) -> Amounts:
        return np.array([draw(st.lists(values, min_size=queues, max_size=queues))])

    unlimited = st.just(np.inf)
    return Demand(
        quota=row(st.one_of(amounts, unlimited)),
        weight=row(st.sampled_from([0.0, 1.0, 2.0, 3.5])),
        limit=row(st.one_of(amounts, unlimited)),
        request=row(amounts),
        usage=row(st.sampled_from([0.0, 0.0, 0.25, 0.8])),
    )


@st.composite
def divisions(draw: st.DrawFn, *, deep: bool) -> tuple[QueueTree, Demand]:
    """Draw queues; in a deep tree a parent stands somewhere before its children."""
    queues = draw(st.integers(1, 8))
    parent = [draw(st.integers(-1, i - 1)) if deep else -1 for i in range(queues)]
    tree = QueueTree(
        parent=np.array(parent, dtype=np.intp),
        priority=np.array([draw(st.sampled_from([50, 100])) for _ in range(queues)]),
        seniority=np.array(draw(st.permutations(range(queues)))),
    )
    return tree, draw(demands(queues))


def divide(tree: QueueTree, demand: Demand, total: float, k_value: float = 1.0) -> Amounts:
    return fair_shares(tree, demand, np.array([total]), UNIT, k_value)


def by_quota(demand: Demand, available: NDArray[np.float64]) -> Amounts:
    """Return what phase 1 gives: the quota as far as it is asked for."""
    wanted = np.minimum(demand.limit, demand.request)
    quota = np.where(np.isinf(demand.quota), available, demand.quota)
    return np.minimum(quota, wanted)


@given(divisions(deep=True), amounts)
def test_siblings_share_at_most_the_total_after_their_quotas(
    division: tuple[QueueTree, Demand], total: float
) -> None:
    tree, demand = division

    share = divide(tree, demand, total)[0]

    for parent in (-1, *range(len(tree.parent))):
        children = tree.parent == parent
        available = total if parent < 0 else share[parent]
        quota = by_quota(demand, np.full_like(demand.request, available))[0, children].sum()
        assert share[children].sum() <= max(available, quota) + 1e-9


@given(divisions(deep=True), amounts)
def test_no_queue_gets_more_than_its_request_or_its_limit(
    division: tuple[QueueTree, Demand], total: float
) -> None:
    tree, demand = division

    share = divide(tree, demand, total)

    assert (share >= 0).all()
    assert (share <= np.minimum(demand.limit, demand.request)).all()


@given(divisions(deep=False), amounts)
def test_nothing_remains_while_a_queue_with_a_weight_requests_more(
    division: tuple[QueueTree, Demand], total: float
) -> None:
    tree, demand = division

    share = divide(tree, demand, total, k_value=0.0)

    unsatisfied = (share < np.minimum(demand.limit, demand.request)) & (demand.weight > 0)
    assert not unsatisfied.any() or share.sum() >= total


@given(divisions(deep=False), amounts, st.data())
def test_a_greater_weight_never_gives_a_smaller_share(
    division: tuple[QueueTree, Demand], total: float, data: st.DataObject
) -> None:
    tree, demand = division
    queue = data.draw(st.integers(0, len(tree.parent) - 1))
    heavier = demand.weight.copy()
    heavier[0, queue] += data.draw(st.sampled_from([0.5, 1.0, 4.0]))

    before = divide(tree, demand, total, k_value=0.0)[0, queue]
    after = divide(tree, replace(demand, weight=heavier), total, k_value=0.0)[0, queue]

    assert after >= before


@given(divisions(deep=True), amounts, st.data())
def test_shares_do_not_depend_on_the_order_of_the_queues(
    division: tuple[QueueTree, Demand], total: float, data: st.DataObject
) -> None:
    tree, demand = division
    order = np.array(data.draw(st.permutations(range(len(tree.parent)))), dtype=np.intp)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    parent = tree.parent[order]
    turned = QueueTree(
        parent=np.where(parent >= 0, place[parent], -1),
        priority=tree.priority[order],
        seniority=tree.seniority[order],
    )
    parts = {name: getattr(demand, name)[:, order] for name in demand.__dataclass_fields__}

    share = divide(tree, demand, total)

    np.testing.assert_allclose(divide(turned, Demand(**parts), total), share[:, order])
