"""One minute of the attack of `make chaos`, which takes an hour; ten minutes in a long run."""

import secrets

import pytest

from devcluster.install import Installation
from tests.e2e.chaos.attack import Plan, attack
from tests.sizes import IS_LONG

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2400)]

ATTACK_S = 600 if IS_LONG else 25


async def test_no_pod_is_bound_twice_and_no_gang_is_half_bound_under_churn_and_kills(
    installation: Installation,
) -> None:
    seed = secrets.randbits(32)
    figures = await attack(installation, Plan(seconds=ATTACK_S, seed=seed, ends_api_server=False))

    print(figures.table())
    assert figures.problems == []
    assert figures.pods_bound > 0
    assert figures.blows.total() > 0
    assert figures.rests >= 1
