"""The import directions of the packages, as configured in pyproject.toml."""

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest


def test_no_package_imports_against_the_configured_direction() -> None:
    # In a process of its own: the linter's configuration of logging disables loggers of this one.
    command = Path(sys.executable).with_name("lint-imports")

    result = subprocess.run([command], capture_output=True, text=True, check=False, timeout=120)

    assert result.returncode == 0, result.stdout + result.stderr


def test_no_modules_import_each_other_on_a_cycle() -> None:
    graph = grimp.build_graph("bindery", "devcluster")
    order = TopologicalSorter(
        {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    )

    try:
        order.prepare()
    except CycleError as error:
        pytest.fail("imports in a circle: " + " <- ".join(error.args[1]))
