"""The documented table of pods equals the table made from the cases."""

import pytest

from tests.e2e.realnode import nodetable


@pytest.fixture(autouse=True)
def inside() -> None:
    """No node is needed."""


def test_the_document_contains_the_table_of_the_cases() -> None:
    text = nodetable.DOCUMENT.read_text()

    assert nodetable.written(text) == text, "python -m tests.e2e.realnode.nodetable"
