"""Tests that need what not every machine has.

They are skipped with the reason. With the environment variable BINDERY_REQUIRE set, as in
`.ci/run`, they fail: a machine that is meant to run everything leaves nothing out.
"""

import os
from typing import NoReturn

import pytest


def lacking(reason: str) -> NoReturn:
    """Skip the running test, or fail it where everything is required."""
    if os.environ.get("BINDERY_REQUIRE"):
        pytest.fail(f"{reason} (BINDERY_REQUIRE is set)")
    pytest.skip(reason)
