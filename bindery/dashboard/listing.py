"""Tables of pages: searched, sorted and cut to a page on the server, by the query of the address.

Pure. A row is a frozen dataclass; a column names one of its fields.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final, Generic, TypeVar
from urllib.parse import urlencode

from bindery.scheduler.model.jobs import JobKey

RowT = TypeVar("RowT")

SIZE: Final = 50
"""Rows of a page by default."""
MOST_ROWS: Final = 1000
"""Maximum number of rows of a page."""
_MOST_SEARCHED: Final = 300
"""Maximum length of a searched text."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A column."""

    key: str
    """The field of a row."""
    title: str
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class TableQuery:
    """The query of an address, as far as it is about a table."""

    search: str = ""
    sort: str = ""
    """The key of a column; with `-` before it, the largest value first."""
    page: int = 1
    size: int = SIZE
    filters: tuple[tuple[str, str], ...] = ()
    """The further parameters of a page, such as the queue; empty ones are left out."""

    @classmethod
    def of(cls, query: Mapping[str, str], filters: Sequence[str] = ()) -> "TableQuery":
        """Read the query of an address; a value that cannot be used counts as absent."""
        return cls(
            search=query.get("q", "").strip()[:_MOST_SEARCHED],
            sort=query.get("sort", "")[:50],
            page=max(1, _number(query.get("page"), 1)),
            size=min(MOST_ROWS, max(1, _number(query.get("size"), SIZE))),
            filters=tuple(
                (name, query[name][:_MOST_SEARCHED]) for name in filters if query.get(name)
            ),
        )

    def whole(self, most: int) -> "TableQuery":
        """Return the same query for all rows, at most `most`."""
        return replace(self, page=1, size=most)

    def at_least(self, size: int) -> "TableQuery":
        """Return the same query with `size` rows where the query names no size."""
        return replace(self, size=size) if self.size == SIZE else self

    def filter(self, name: str) -> str:
        """Return the value of a further parameter; empty without one."""
        return dict(self.filters).get(name, "")

    def link(self, **changes: object) -> str:
        """Return the query with `changes`, for the link of another state of the table."""
        values: dict[str, object] = {
            "q": self.search,
            **dict(self.filters),
            "sort": self.sort,
            "page": self.page if self.page > 1 else "",
            "size": self.size if self.size != SIZE else "",
        }
        values |= changes
        kept = {key: value for key, value in values.items() if value not in ("", None)}
        return f"?{urlencode(kept)}" if kept else "?"


@dataclass(frozen=True)
class Listing(Generic[RowT]):
    """One page of a table."""

    caption: str
    headings: tuple[Heading, ...]
    rows: tuple[RowT, ...]
    matching: int
    """Number of rows that match the search and the filters."""
    total: int
    page: int
    pages: int
    asked: TableQuery

    def link_to_sort(self, key: str) -> str:
        """Return the query that sorts by `key`; by the other direction if it does already."""
        other = f"-{key}" if self.asked.sort == key else key
        return self.asked.link(sort=other, page="")

    def sorted_as(self, key: str) -> str:
        """Return the direction as `aria-sort` has it."""
        return {key: "ascending", f"-{key}": "descending"}.get(self.asked.sort, "none")


def listing(
    caption: str, headings: Sequence[Heading], rows: Iterable[RowT], asked: TableQuery
) -> Listing[RowT]:
    """Return the page of `rows` that `asked` names; without a sort they keep their order."""
    everything = list(rows)
    keys = [each.key for each in headings]
    words = asked.search.casefold().split()
    found = list(_matching(everything, keys, words)) if words else everything
    key = asked.sort.removeprefix("-")
    if key in keys:
        found = sorted(
            found, key=lambda row: _order(getattr(row, key)), reverse=asked.sort.startswith("-")
        )
    pages = max(1, math.ceil(len(found) / asked.size))
    page = min(asked.page, pages)
    start = (page - 1) * asked.size
    rows_of_page = tuple(found[start : start + asked.size])
    return Listing(
        caption, tuple(headings), rows_of_page, len(found), len(everything), page, pages, asked
    )


def _matching(rows: Iterable[RowT], keys: Sequence[str], words: Sequence[str]) -> Iterator[RowT]:
    cells = attrgetter(*keys, keys[0])  # one more, as of a single column it returns no tuple
    for row in rows:
        text = " ".join(map(cell, cells(row))).casefold()
        if all(word in text for word in words):
            yield row


def _order(value: object) -> tuple[int, float, str]:
    """Return the key for sorting: numbers by their value, texts by theirs, nothing last."""
    if value is None or value == "":
        return (2, 0.0, "")
    if isinstance(value, int | float):
        return (0, float(value), "")
    return (1, 0.0, cell(value).casefold())


def cell(value: object) -> str:
    """Return a value as the text of a cell."""
    if isinstance(value, (str, JobKey)):  # first, as a table has 100,000 cells, and most are texts
        return str(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    if isinstance(value, tuple | list):
        return ", ".join(cell(each) for each in value)
    return str(value)


def _number(text: str | None, otherwise: int) -> int:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) < 10
    return int(text) if is_number and text is not None else otherwise
