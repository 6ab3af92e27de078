"""The pages of kinds, commands and series are what the declarations generate."""

import pytest

from bindery.cli import lazy
from bindery.kube.objects.definitions import KINDS
from tests.house import commandreference, kindreference, metricreference


def test_the_page_of_kinds_is_current() -> None:
    written = kindreference.PAGE.read_text(encoding="utf-8")

    assert written == kindreference.page(), "the declarations changed: run `make crds`"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_of_a_spec_has_a_row_with_its_meaning(kind: type) -> None:
    rows = [
        line.split(" | ")
        for line in kindreference.page().partition(f"## {kind.__name__}\n")[2].splitlines()
        if line.startswith("| `spec.")
    ]

    assert rows
    assert [row[0] for row in rows if row[0].count(".") == 1 and len(row[-1]) < 10] == []


def test_the_page_of_commands_is_current() -> None:
    written = commandreference.PAGE.read_text(encoding="utf-8")

    assert written == commandreference.page(), "the commands changed: run `make crds`"
    assert [name for name in lazy.COMMANDS if f"\n## `bindery {name}" not in written] == []


def test_the_page_of_series_is_current() -> None:
    written = metricreference.PAGE.read_text(encoding="utf-8")

    assert written == metricreference.page(), "the metrics changed: run `make crds`"
