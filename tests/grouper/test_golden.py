"""For every row: owners and pods in, PodGroups out."""

import goldens
import pytest

from bindery.grouper.table import load, plan
from bindery.grouper.table.loading import Table
from bindery.grouper.table.rows import Row

TABLE = load()


@pytest.mark.parametrize("name", goldens.names())
def test_a_workload_becomes_its_groups(name: str) -> None:
    golden = goldens.load_golden(name)

    found = plan(golden.owners, golden.pods, TABLE)

    assert [goldens.shown(group) for group in found.groups] == golden.groups
    problems = [f"{each.object} {each.reason}: {each.message}" for each in found.problems]
    assert problems == golden.problems
    assert [f"{each.kind}/{each.name}" for each in found.wanted] == golden.wanted


def test_every_row_has_a_golden_file() -> None:
    seen = {id(row) for name in goldens.names() for row in rows_of(goldens.load_golden(name))}

    missing = [row.kind for row in TABLE if id(row) not in seen]
    assert missing == []


def rows_of(golden: goldens.Golden, table: Table = TABLE) -> list[Row]:
    """Return the rows of the objects and pods of `golden`."""
    kinds = [
        (item["apiVersion"], item["kind"], item["metadata"].get("labels", {}))
        for item in golden.owners.values()
    ]
    kinds += [("v1", "Pod", dict(pod.labels)) for pod in golden.pods]
    found = (
        table.row(version.rpartition("/")[0], version.rpartition("/")[2], kind, labels)
        for version, kind, labels in kinds
    )
    return [row for row in found if row is not None]
