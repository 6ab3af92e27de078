"""The rows of users are published on the grouper's Lease and read back unchanged."""

import json

import pytest

from bindery.api import yamlfile
from bindery.api.names import ROWS_ANNOTATION
from bindery.api.yamlfile import FileError
from bindery.grouper.table.loading import load, table_of
from bindery.grouper.table.publishing import (
    MOST_BYTES,
    RowsNotPublishedError,
    annotations,
    published,
)

ROWS = """
rows:
- match: {group: example.com, kind: Training}
  min: spec.workers
- match: {group: batch, kind: Job}
  min: "`7`"
"""


def test_only_the_rows_of_users_are_published() -> None:
    table = table_of(yamlfile.parse(ROWS, "mine"))

    found = table_of(published(annotations(table), "the Lease"))

    assert [row.to_wire() for row in found] == [row.to_wire() for row in table]
    rows = json.loads(annotations(table)[ROWS_ANNOTATION])["rows"]
    assert {row["match"]["kind"] for row in rows} == {"Training", "Job"}


def test_the_shipped_rows_are_used_without_rows_of_users() -> None:
    for given in (annotations(load()), {}):
        found = table_of(published(given, "the Lease"))
        assert [row.to_wire() for row in found] == [row.to_wire() for row in load()]


def test_rows_that_are_too_large_are_not_written_at_each_renewal() -> None:
    kinds = (f"- {{match: {{group: g, kind: K{i}}}, min: spec.workers}}" for i in range(1000))
    given = annotations(table_of(yamlfile.parse("rows:\n" + "\n".join(kinds), "mine")))

    assert len(given[ROWS_ANNOTATION]) < MOST_BYTES
    with pytest.raises(RowsNotPublishedError):
        published(given, "the Lease")


def test_unreadable_rows_are_an_error_that_names_the_lease() -> None:
    with pytest.raises(FileError, match="the Lease:1: not YAML"):
        published({ROWS_ANNOTATION: "{"}, "the Lease")


def test_rows_given_to_the_command_precede_rows_of_the_cluster() -> None:
    of_cluster = yamlfile.parse(ROWS, "cluster")
    tried = yamlfile.parse(ROWS.replace("`7`", "`3`"), "tried")

    row = table_of(of_cluster, tried).row("batch", "v1", "Job")

    assert row is not None
    assert row.min == ("`3`",)
