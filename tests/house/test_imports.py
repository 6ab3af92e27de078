"""The import directions of the house, as pyproject.toml states them."""

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports


def test_no_package_imports_against_the_direction_of_the_house() -> None:
    assert lint_imports() == EXIT_STATUS_SUCCESS
