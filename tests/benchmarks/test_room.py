"""The worlds in which evictions are measured: at a small size, cycles have the stated results."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import queuetrees, room, roomworlds
from bindery.scheduler.fairness.division import fair_shares

SMALL = 50


@pytest.mark.parametrize("case", room.CASES, ids=lambda case: case.name)
def test_every_case_has_its_expected_result_at_a_small_size(case: room.Case) -> None:
    lap = case.run(SMALL)

    assert lap.cpu_s > 0


def test_a_cycle_with_an_unexpected_result_fails_the_benchmark() -> None:
    world = roomworlds.large_gang(SMALL)
    wrong = replace(world, expected=replace(world.expected, evicted=world.expected.evicted - 1))

    with pytest.raises(RuntimeError, match="was to be done"):
        room.cycle_in(wrong)


def test_worlds_of_500_nodes_have_the_sizes_of_their_targets() -> None:
    gangs = roomworlds.scattered(500).expected
    large = roomworlds.large_gang(500).expected
    full = roomworlds.full_of_single_jobs(500)

    assert (gangs.moved, gangs.promised) == (410, 410)
    assert (large.evicted, large.promised) == (2000, 250)
    pods = [item for item in full.objects if type(item).__name__ == "Pod"]
    assert len(pods) == 8000


@pytest.mark.parametrize("count", [4, 10, 125, 1000])
def test_queues_are_in_four_levels(count: int) -> None:
    division = queuetrees.four_levels(count)

    assert len(division.tree.parent) == count
    assert division.tree.depths().max() == 3


@pytest.mark.parametrize("wrong", ["too much", "too little", "nothing"])
def test_a_wrong_division_of_shares_is_detected(wrong: str) -> None:
    of = queuetrees.four_levels(SMALL)
    share = fair_shares(of.tree, of.demand, of.total, of.unit, of.k_value)
    assert queuetrees.is_right(of, share)

    if wrong == "too much":
        share[:, 0] = of.demand.request[:, 0] + of.total
    elif wrong == "too little":
        queue = int(np.argmax(np.minimum(of.demand.quota, of.demand.limit)[2]))
        share[2, queue] = 0.0
    else:
        share[:] = 0.0
    assert not queuetrees.is_right(of, share)
