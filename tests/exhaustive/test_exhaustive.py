"""The scheduler against an exhaustive search over small worlds."""

import pytest

from tests.exhaustive.compare import Comparison, Outcome, compare
from tests.exhaustive.making import make
from tests.exhaustive.table import ALL, LEAST_FOUND, MOST_EVICTED, markdown, rows
from tests.sizes import PROPERTY_TIMEOUT_S

SAMPLE, FULL = 500, 10_000
FIRST_SEED = 0


def compared(worlds: int) -> list[Comparison]:
    return [compare(make(seed)) for seed in range(FIRST_SEED, FIRST_SEED + worlds)]


def check(comparisons: list[Comparison], least_found: float, most_evicted: float) -> None:
    table = rows(comparisons)
    total = table[ALL]
    text = "\n".join(markdown(table))
    broken = {e.world.seed: e.why for e in comparisons if e.outcome is Outcome.NOT_ALLOWED}

    assert not broken, text
    assert total.outcomes[Outcome.OUT_OF_TIME] <= len(comparisons) // 1000, text
    assert total.found_part >= least_found, text
    assert total.excess <= most_evicted, text


@pytest.mark.timeout(PROPERTY_TIMEOUT_S)
def test_the_scheduler_finds_plans_that_exist_and_evicts_few_pods_in_a_sample_of_worlds() -> None:
    # A few hundred plans: each one counts for more than in the full run.
    check(compared(SAMPLE), LEAST_FOUND - 0.005, MOST_EVICTED + 0.03)


@pytest.mark.long("takes ten minutes")
@pytest.mark.timeout(PROPERTY_TIMEOUT_S)
def test_the_scheduler_finds_plans_that_exist_and_evicts_few_pods_in_all_worlds() -> None:
    check(compared(FULL), LEAST_FOUND, MOST_EVICTED)
