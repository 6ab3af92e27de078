"""How much of what could be tried without end a run tries: a sample, or the full sizes.

`make check` and plain pytest take the sample. `make test` sets BINDERY_TESTS=whole, with more
histories, and `make test-long` BINDERY_TESTS=long.
"""

import os
from collections.abc import Iterable
from typing import Any

from hypothesis import HealthCheck, settings

_SIZE = os.environ.get("BINDERY_TESTS", "sample")
IS_LONG = _SIZE == "long"

HISTORIES = {"sample": 60, "whole": 60, "long": 20_000}[_SIZE]
"""How many histories of failures are played."""
CHANCES = range({"sample": 2, "whole": 2, "long": 100}[_SIZE])
"""The seeds of chance with which each world that is written by hand is played."""

_LONG_EXAMPLES = 2000

PROPERTY_TIMEOUT_S = 6 * 3600 if IS_LONG else 1800
"""How long a property test may take. Hypothesis shrinks a failing case for up to five minutes and
then reports it; a limit that comes earlier hides the cause behind its own message."""


def examples(sample: int) -> int:
    """Return how many cases a property is tried with; `sample` is the number of a short run."""
    return _LONG_EXAMPLES if IS_LONG else sample


def sample(count: int, every: Iterable[Any]) -> list[Any]:
    """Return `count` of them, evenly spread from the first on; in a long run, all of them."""
    found = list(every)
    if IS_LONG or count >= len(found):
        return found
    return [found[number * len(found) // count] for number in range(count)]


def load_profile() -> None:
    """Choose hypothesis' settings for tests that have none of their own.

    Hypothesis' own profile for CI repeats the same examples in every run. Here each run explores,
    and what fails is printed as a decorator with which it can be repeated anywhere. How long it
    takes to draw examples does not matter: on a busy machine, a process can stand still for long.
    """
    common = settings(
        derandomize=False,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.register_profile("sample", common, max_examples=40)
    settings.register_profile("long", common, max_examples=_LONG_EXAMPLES)
    settings.load_profile("long" if IS_LONG else "sample")
