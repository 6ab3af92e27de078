"""How `pytest --numprocesses` spreads the tests over its workers.

A file stays together, because its tests share components and the control plane of their worker.
Files of `APART` do not: each of their tests is long and has all its components to itself. What
takes longest begins first, so that no worker is left with it at the end.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

APART = frozenset({"tests/e2e/test_e2e_kill_matrix.py"})

LONGEST = ("tests/e2e/test_e2e_kill_matrix.py",)
"""Files that take more than twenty seconds, the longest first. Others may come in any order."""


class Spread(LoadScopeScheduling):
    """Gives each worker one file after the other, or one test of a file of `APART`."""

    def _split_scope(self, nodeid: str) -> str:
        file = file_of(nodeid)
        return nodeid if file in APART else file


def spread(config: pytest.Config, log: Producer) -> Spread:
    """Return the scheduler of a run; it keeps the order in which the tests were collected."""
    config.option.loadscopereorder = False
    return Spread(config, log)


def longest_first(items: list[pytest.Item]) -> None:
    """Sort `items` in place; tests of one file keep their order."""
    places = {file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(file_of(item.nodeid), len(places)))


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]
