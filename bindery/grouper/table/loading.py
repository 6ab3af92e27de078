"""Reads the rows that are shipped and those of users, and finds the row of a kind.

A mistake in a file is an error with the file and the line. A user's row replaces the shipped row of
the same kind and version.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from bindery.api import yamlfile
from bindery.api.yamlfile import Document
from bindery.grouper.table import rows as models
from bindery.grouper.table.rows import Row, RowFile

SHIPPED: Final = Path(__file__).with_name("rows")
"""One file for each family of kinds."""
_ANY: Final = "*"
_NO_LABEL: Final = ""

Key = tuple[str, str, str]
"""Group, version or `*`, kind."""


@dataclass(frozen=True)
class Table:
    """The rows by kind."""

    _rows: dict[Key, dict[str, Row]]
    """Kind -> label of the objects, or "" -> row."""

    def row(
        self, group: str, version: str, kind: str, labels: Mapping[str, str] | None = None
    ) -> Row | None:
        """Return the row of a kind; None if there is none.

        A row for the version comes before one for all, and one for a label of the object, given
        in `labels`, before one without.
        """
        for each in (version, _ANY):
            found = self._rows.get((group, each, kind), {})
            for label in sorted(found.keys() & (labels or {}).keys()):
                return found[label]
            if _NO_LABEL in found:
                return found[_NO_LABEL]
        return None

    def __iter__(self) -> Iterator[Row]:
        """Yield each row once, by group and kind."""
        seen: set[int] = set()
        for _, rows in sorted(self._rows.items(), key=lambda item: item[0]):
            for _, row in sorted(rows.items()):
                if id(row) not in seen:
                    seen.add(id(row))
                    yield row


def load(files: Iterable[Path] = ()) -> Table:
    """Return the table of the shipped rows and of the rows in `files`.

    Raises:
        FileError: a file cannot be read, has an unknown key, a path that is no path, or a second
            row for a kind.
    """
    return table_of([document for file in files for document in yamlfile.read(file)])


def table_of(documents: Sequence[Document], *further: Sequence[Document]) -> Table:
    """Return the table of the shipped rows and of those in `documents`; see `load`.

    `further`: rows that replace those before them of the same kind and version.
    """
    found = {key: dict(rows) for key, rows in _shipped().items()}
    for layer in (documents, *further):
        for key, rows in _read([layer]).items():
            found.setdefault(key, {}).update(rows)
    return Table(found)


@cache
def _shipped() -> dict[Key, dict[str, Row]]:
    return _read(yamlfile.read(file) for file in sorted(SHIPPED.glob("*.yaml")))


def _read(files: Iterable[Sequence[Document]]) -> dict[Key, dict[str, Row]]:
    found: dict[Key, dict[str, Row]] = {}
    places: dict[tuple[Key, str], str] = {}
    for document in (document for documents in files for document in documents):
        for index, row in enumerate(_validated(document).rows):
            match, location = row.match, ("rows", index, "match")
            for version in match.versions:
                key, label = (match.group, version, match.kind), match.label or _NO_LABEL
                if (key, label) in places:
                    first = places[key, label]
                    raise document.error(
                        location, f"a second row for {row.kind}, the first is at {first}"
                    )
                found.setdefault(key, {})[label] = row
                places[key, label] = f"{document.file}:{document.line(location)}"
    return found


def _validated(document: Document) -> RowFile:
    try:
        return RowFile.model_validate(document.data)
    except ValidationError as error:
        unknown = [item["loc"] for item in error.errors() if item["type"] == "extra_forbidden"]
        if unknown:
            location = min(unknown, key=document.line)
            near = get_close_matches(str(location[-1]), known_keys(), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise document.error(location, f"unknown key{hint}") from error
        return yamlfile.validate(RowFile, document)


@cache
def known_keys() -> tuple[str, ...]:
    """Return all keys of rows and of what is in them."""
    kinds = (
        each
        for each in vars(models).values()
        if isinstance(each, type) and issubclass(each, BaseModel)
    )
    keys = (
        field.alias or to_camel(name) for kind in kinds for name, field in kind.model_fields.items()
    )
    return tuple(sorted(set(keys)))
