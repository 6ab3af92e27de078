"""The table of topology quality: gangs, simple policies and measures."""

import numpy as np
import pytest

from benchmarks.quality.domains import Placed, best_fit, first_fit, play_engine, play_policy
from benchmarks.quality.gangtraces import BLOCK, NODES, RACK, Gang, Sizes, make_gangs
from benchmarks.quality.topology import measure
from bindery.api.configuration import SchedulerConfiguration

SHORT = Sizes(span_s=120.0, mean_runtime_s=60.0, load=0.5)


def free_nodes(**racks: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a cluster in which only racks such as `r3` have free nodes, so many each."""
    free = np.zeros(NODES, dtype=np.bool_)
    for name, count in racks.items():
        start = int(name.removeprefix("r")) * RACK
        free[start : start + count] = True
    return free


def test_best_fit_chooses_the_smallest_sufficient_rack_and_first_fit_the_first() -> None:
    free = free_nodes(r1=16, r2=5, r3=8)

    first, best = first_fit(free, 4), best_fit(free, 4)

    assert first is not None
    assert best is not None
    assert set(first // RACK) == {1}
    assert set(best // RACK) == {2}


def test_a_gang_that_fits_no_rack_is_placed_in_one_block() -> None:
    free = free_nodes(r0=10, r4=10, r5=10, r6=2)

    nodes = best_fit(free, 20)

    assert nodes is not None
    assert set(nodes // BLOCK) == {1}
    assert best_fit(free, 33) is None


def test_gangs_are_reproducible_by_seed_and_within_their_bounds() -> None:
    gangs = make_gangs(1, SHORT)

    assert gangs == make_gangs(1, SHORT)
    assert gangs != make_gangs(2, SHORT)
    assert {2 <= gang.nodes <= 64 for gang in gangs} == {True}
    assert gangs[0].arrival_s == 0.0


@pytest.mark.parametrize("choose", [first_fit, best_fit])
def test_simple_policies_place_no_two_gangs_on_one_node(choose: object) -> None:
    gangs = make_gangs(1, SHORT)
    assert callable(choose)

    check(play_policy(gangs, choose))


def test_the_engine_places_no_two_gangs_on_one_node() -> None:
    gangs = make_gangs(1, Sizes(span_s=20.0, mean_runtime_s=20.0, load=0.5))

    placed = play_engine(gangs, SchedulerConfiguration(actions=("allocate",)), asks=True)

    assert placed
    check(placed)


def check(placed: list[Placed]) -> None:
    """Check that every gang has its nodes, and that none has a node at the same time as another."""
    for each in placed:
        assert len(set(each.nodes)) == each.gang.nodes
        for other in placed:
            starts = each.started_s <= other.started_s < each.started_s + each.gang.runtime_s
            if other is not each and starts:
                assert not set(each.nodes) & set(other.nodes)


def test_levels_and_free_blocks_are_counted() -> None:
    gangs = [Gang("a", 2, 0.0, 900.0), Gang("b", 2, 0.0, 900.0), Gang("c", 2, 600.0, 900.0)]
    placed = [
        Placed(gangs[0], 0.0, (0, 1)),
        Placed(gangs[1], 60.0, (RACK, RACK * 2)),
        Placed(gangs[2], 600.0, (RACK * 3, BLOCK)),
    ]

    found = measure("ours", gangs, placed, 0.0)

    assert found.gangs == 3
    assert (found.levels_crossed, found.excess_levels) == (1.0, 1.0)
    assert found.in_one_rack == pytest.approx(1 / 3)
    assert found.in_one_block == pytest.approx(2 / 3)
    assert found.largest_free_block == 64.0
    assert (found.waiting_mean_s, found.waiting_median_s, found.waiting_p95_s) == (20.0, 0.0, 60.0)
