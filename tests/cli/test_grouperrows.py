"""The grouper's rows that `bindery whatif` reads from the Lease of a cluster's grouper."""

import asyncio
from typing import Any

import pytest

from bindery.answers.grouperrows import GrouperRows, read_rows
from bindery.api import yamlfile
from bindery.api.names import ROWS_ANNOTATION
from bindery.grouper.table import publishing
from bindery.grouper.table.loading import table_of
from bindery.kube.errors import ApiError, ForbiddenError, NotFoundError
from bindery.kube.objects.watched import Lease, Meta

ROWS = "rows: [{match: {group: example.com, kind: Training}, min: spec.workers}]"


class Server:
    """Answers every request with one Lease, or with an error."""

    def __init__(self, answer: Lease | ApiError) -> None:
        self.answer = answer

    async def get(self, *_: object) -> Lease:
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer


def rows(answer: Lease | ApiError) -> GrouperRows:
    server: Any = Server(answer)
    return asyncio.run(read_rows(server, "kube-system"))


def lease(**annotations: str) -> Lease:
    return Lease(metadata=Meta(name="bindery-grouper", annotations=annotations))


def test_the_rows_that_the_grouper_publishes_are_used() -> None:
    mine = table_of(yamlfile.parse(ROWS, "mine"))

    found = rows(lease(**publishing.annotations(mine)))

    assert (found.is_there, found.problem) == (True, "")
    assert table_of(found.documents).row("example.com", "v1", "Training") is not None


def test_a_cluster_without_a_lease_of_the_grouper_has_no_grouper() -> None:
    assert rows(NotFoundError(404, "NotFound", "no")) == GrouperRows(is_there=False)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (ForbiddenError(403, "Forbidden", "no"), "this user may not read Lease kube-system/"),
        (lease(**{ROWS_ANNOTATION: "too large"}), "too large to be published; give them with"),
        (lease(**{ROWS_ANNOTATION: '{"rows": [{"mim": 1}]}'}), "the rows of users cannot be read"),
    ],
)
def test_unavailable_rows_are_reported(answer: Lease | ApiError, problem: str) -> None:
    found = rows(answer)

    assert (found.is_there, found.documents) == (True, ())
    assert problem in found.problem
