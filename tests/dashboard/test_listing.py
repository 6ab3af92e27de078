"""Tables are searched, sorted and cut to pages by the query, and each state has a link."""

from dataclasses import dataclass

import pytest

from bindery.dashboard.listing import MOST_ROWS, SIZE, Heading, TableQuery, listing


@dataclass(frozen=True)
class Fruit:
    name: str
    weight: float | None


HEADINGS = (Heading("name", "Name"), Heading("weight", "Weight", is_number=True))
FRUITS = [Fruit("Pear", 3.0), Fruit("apple", None), Fruit("Quince", 11.0), Fruit("pineapple", 2.0)]


def names(asked: TableQuery) -> list[str]:
    return [row.name for row in listing("Fruits", HEADINGS, FRUITS, asked).rows]


def test_without_a_query_the_rows_keep_their_order() -> None:
    assert names(TableQuery()) == ["Pear", "apple", "Quince", "pineapple"]


def test_a_search_finds_all_words_whatever_their_case() -> None:
    assert names(TableQuery(search="APPLE")) == ["apple", "pineapple"]
    assert names(TableQuery(search="apple 2")) == ["pineapple"]


def test_numbers_are_sorted_as_numbers_and_nothing_comes_last() -> None:
    assert names(TableQuery(sort="weight")) == ["pineapple", "Pear", "Quince", "apple"]
    assert names(TableQuery(sort="name")) == ["apple", "Pear", "pineapple", "Quince"]
    assert names(TableQuery(sort="-name")) == ["Quince", "pineapple", "Pear", "apple"]


def test_a_sort_by_an_unknown_column_is_ignored() -> None:
    assert names(TableQuery(sort="__class__")) == names(TableQuery())


def test_a_page_after_the_last_one_is_the_last_one() -> None:
    found = listing("Fruits", HEADINGS, FRUITS, TableQuery(page=9, size=3))

    assert ([row.name for row in found.rows], found.page, found.pages) == (["pineapple"], 2, 2)
    assert (found.matching, found.total) == (4, 4)


@pytest.mark.parametrize("value", ["", "-1", "x", "٣", "99999999999999999999", "1.5"])
def test_a_number_that_cannot_be_used_counts_as_absent(value: str) -> None:
    asked = TableQuery.of({"page": value, "size": value})

    assert (asked.page, asked.size) == (1, SIZE)


def test_the_number_of_rows_is_bounded() -> None:
    assert TableQuery.of({"size": "999999"}).size == MOST_ROWS


def test_every_state_has_a_link() -> None:
    query = {"q": "a b", "sort": "-name", "page": "2", "kind": "x&y"}
    asked = TableQuery.of(query, ("kind",))

    assert asked.link() == "?q=a+b&kind=x%26y&sort=-name&page=2"
    assert asked.link(q="", page=1, kind="z") == "?kind=z&sort=-name&page=1"
