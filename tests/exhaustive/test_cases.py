"""Cases in which the scheduler differs from the exhaustive search, by their causes."""

from pathlib import Path

import pytest

from bindery.scenario.format import Scenario
from bindery.scenario.runner import run
from tests.ownscenarios import scenarios_of

CASES = scenarios_of(*(Path(__file__).parent / "cases").glob("*.yaml"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_known_difference_from_the_exhaustive_search_is_still_there(case: Scenario) -> None:
    """The case of a cause that is mended moves to `tests/scenarios`, where it must hold."""
    assert case.origin
    assert not run(case).ok
