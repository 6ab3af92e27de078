"""The rows of users as the Lease of the grouper publishes them, so that commands use the same.

The grouper writes the annotation, and `bindery whatif` reads it. Shipped rows are not in it.
Invariant: it has at most `MOST_BYTES`, as it is written with each renewal.
"""

import json
from collections.abc import Mapping
from typing import Final

from bindery.api import yamlfile
from bindery.api.names import ROWS_ANNOTATION
from bindery.api.yamlfile import Document
from bindery.grouper.table.loading import Table, load

MOST_BYTES: Final = 16 * 1024
_TOO_LARGE: Final = "too large"


class RowsNotPublishedError(Exception):
    """The rows of users exceed `MOST_BYTES`."""


def annotations(table: Table) -> dict[str, str]:
    """Return the annotation with the rows of `table` that are not shipped."""
    shipped = {id(row) for row in load()}
    rows = [row.to_wire() for row in table if id(row) not in shipped]
    text = json.dumps({"rows": rows}, separators=(",", ":"))
    return {ROWS_ANNOTATION: text if len(text) <= MOST_BYTES else _TOO_LARGE}


def published(given: Mapping[str, str], where: str) -> list[Document]:
    """Return the rows in the annotations `given` of a Lease, as a file has them.

    `where`: the Lease, for errors.

    Raises:
        RowsNotPublishedError: they were too large.
        FileError: they cannot be read.
    """
    text = given.get(ROWS_ANNOTATION, '{"rows":[]}')
    if text == _TOO_LARGE:
        raise RowsNotPublishedError
    return yamlfile.parse(text, where)
