"""What hurt users of KAI."""

import pytest

from tests.histories.known.knownworld import KnownHistory, KnownWorld, plan, taken_by
from tests.histories.known.objects import GRACE_S, group, pod

SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gang_whose_pods_finish_one_by_one_is_not_evicted(seed: int) -> None:
    """KAI #1968: pods that had succeeded vanished from the scheduler's view.

    The rest of their gang was below the minimum, and was evicted after the grace period.
    """

    async def people(world: KnownWorld) -> None:
        runs = (1.0, 1.0 + 2 * GRACE_S, 1.0 + 4 * GRACE_S)
        pods = [pod(f"g-{index}", "g", run_s=run_s) for index, run_s in enumerate(runs)]
        await world.submit(group("g", 3), pods)
        await world.until(lambda: world.phases("g") == ["Succeeded"] * 3)

    played = KnownHistory(plan(seed, nodes=2), people).expect()

    assert not taken_by(played, "scheduler")
