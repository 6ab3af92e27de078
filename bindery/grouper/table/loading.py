"""Reads the rows that are shipped and those of users, and finds the row of a kind.

A mistake in a file is an error with the file and the line. A user's row replaces the shipped row of
the same kind and version.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

from bindery.api import yamlfile
from bindery.api.yamlfile import Document, FileError
from bindery.grouper.table import rows as models
from bindery.grouper.table.rows import Row, RowFile

SHIPPED: Final = Path(__file__).with_name("rows")
"""One file for each family of kinds."""
_ANY: Final = "*"

Key = tuple[str, str, str]
"""Group, version or `*`, kind."""


@dataclass(frozen=True)
class Table:
    """The rows by kind."""

    _rows: dict[Key, Row]

    def row(self, group: str, version: str, kind: str) -> Row | None:
        """Return the row of a kind; None if there is none. A row for the version comes first."""
        exact = self._rows.get((group, version, kind))
        return exact if exact is not None else self._rows.get((group, _ANY, kind))

    def __iter__(self) -> Iterator[Row]:
        """Yield each row once, by group and kind."""
        seen: set[int] = set()
        for _, row in sorted(self._rows.items(), key=lambda item: item[0]):
            if id(row) not in seen:
                seen.add(id(row))
                yield row


def load(files: Iterable[Path] = ()) -> Table:
    """Return the table of the shipped rows and of the rows in `files`.

    Raises:
        FileError: a file cannot be read, has an unknown key, a path that is no path, or a second
            row for a kind.
    """
    found = dict(_shipped())
    found.update(_of_users(yamlfile.read(file) for file in files))
    return Table(found)


def table_of(documents: Sequence[Document]) -> Table:
    """Return the table of the shipped rows and of those in `documents`; see `load`."""
    return Table({**_shipped(), **_of_users([documents])})


@cache
def _shipped() -> dict[Key, Row]:
    return _of_users(yamlfile.read(file) for file in sorted(SHIPPED.glob("*.yaml")))


def _of_users(files: Iterable[Sequence[Document]]) -> dict[Key, Row]:
    found: dict[Key, Row] = {}
    places: dict[Key, str] = {}
    for documents in files:
        for document in documents:
            for index, row in enumerate(_validated(document).rows):
                for version in row.match.versions:
                    key = (row.match.group, version, row.match.kind)
                    location = ("rows", index, "match")
                    if key in found:
                        message = f"a second row for {row.kind}, the first is at {places[key]}"
                        raise document.error(location, message)
                    found[key] = row
                    places[key] = f"{document.file}:{document.line(location)}"
    return found


def _validated(document: Document) -> RowFile:
    try:
        return RowFile.model_validate(document.data)
    except ValidationError as error:
        problems = sorted(
            (document.line(item["loc"]), item["loc"], _described(item["loc"][-1:], item["type"]))
            for item in error.errors()
            if item["type"] == "extra_forbidden"
        )
        if problems:
            line, location, message = problems[0]
            at = yamlfile.format_location(location)
            raise FileError(document.file, line, f"{at}: {message}") from error
        return yamlfile.validate(RowFile, document)


def _described(key: Sequence[str | int], _: str) -> str:
    name = str(key[0]) if key else ""
    near = get_close_matches(name, _known_keys(), n=1)
    return f"unknown key; did you mean {near[0]}?" if near else "unknown key"


@cache
def _known_keys() -> tuple[str, ...]:
    kinds = (
        each
        for each in vars(models).values()
        if isinstance(each, type) and issubclass(each, BaseModel)
    )
    keys = (f.alias or name for kind in kinds for name, f in kind.model_fields.items())
    return tuple(sorted(set(keys)))
