"""The import directions of the house, as pyproject.toml states them."""

import subprocess
import sys
from pathlib import Path


def test_no_package_imports_against_the_direction_of_the_house() -> None:
    # In a process of its own: the linter's configuration of logging disables loggers of this one.
    command = Path(sys.executable).with_name("lint-imports")

    result = subprocess.run([command], capture_output=True, text=True, check=False, timeout=120)

    assert result.returncode == 0, result.stdout + result.stderr
