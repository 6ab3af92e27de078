"""The project's own scenarios, each file of which is read once in a process."""

from functools import cache
from pathlib import Path

from bindery.scenario.files import read_scenarios
from bindery.scenario.format import Scenario

FOLDER = Path(__file__).parent / "scenarios"


def scenarios_of(*paths: Path) -> list[Scenario]:
    """Return the scenarios in files, in order.

    Raises:
        FileError: one cannot be read.
    """
    return [scenario for path in sorted(paths) for scenario in _read(path)]


@cache
def _read(path: Path) -> list[Scenario]:
    scenarios = []
    for item in read_scenarios(path):
        if not isinstance(item, Scenario):
            raise item
        scenarios.append(item)
    return scenarios
