"""Hostile names are shown as text in every form, and a page loads nothing from elsewhere."""

import csv
import io
import json
import re
from dataclasses import dataclass, replace

import pytest

from bindery.dashboard import rendering
from bindery.dashboard.facts import Picture
from bindery.dashboard.listing import Heading, TableQuery, listing
from bindery.dashboard.rights import ALL
from bindery.dashboard.seen import shown_to
from bindery.scheduler.model.jobs import JobKey
from tests.dashboard.pictures import BUSY, picture_in, renderings

HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "safe\u202egnp.exe\u2066",
    "'; DROP TABLE",
    "{{ 7 * 7 }}",
    "n" * 253,
)


def with_name(name: str) -> Picture:
    """Return a picture in which gangs, queues, nodes and messages have the hostile `name`."""
    whole = picture_in(BUSY)
    gangs = tuple(
        replace(
            gang,
            key=JobKey(name, name, True),
            queue=name,
            message=name,
            reason=name,
            workload=name,
            advice=name,
        )
        for gang in whole.gangs[:2]
    )
    queues = tuple(replace(each, name=name, problem=name) for each in whole.queues[:1])
    nodes = tuple(
        replace(each, name=name, rack=name, model=name, problem=name, is_sick=True)
        for each in whole.nodes[:1]
    )
    return replace(whole, gangs=gangs, queues=queues, nodes=nodes, notes=(name,), absence=name)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_on_every_page(name: str) -> None:
    for title, text in renderings(shown_to(with_name(name), ALL)):
        assert "\x1b" not in text, title
        assert "\u202e" not in text, title
        if title.endswith("html"):
            assert "<script>alert" not in text, title
            assert "<img src=x" not in text, title
            assert ">49<" not in text, title


def test_json_is_ascii_and_has_the_name_as_it_is() -> None:
    for title, text in renderings(with_name("a\u202eb")):
        if title.startswith("gangs") and title.endswith("json"):
            assert text.isascii()
            assert json.loads(text)["listing"]["rows"][0]["name"] == "a\u202eb"
            return
    pytest.fail("there is a page of gangs")


def test_no_page_names_another_origin_or_has_a_script_or_style_inside() -> None:
    for title, text in renderings(picture_in(BUSY)):
        if title.endswith("html"):
            sources = re.findall(r"""\b(?:src|href|action)=["']([^"']*)""", text)
            assert [each for each in sources if not each.startswith(("/", "?", "#"))] == [], title
            assert not re.search(r"""\sstyle=|\son[a-z]+=|<style|<script(?! src="/static/)""", text)


@dataclass(frozen=True)
class Cell:
    text: str
    number: float


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_csv_begins_a_formula(start: str) -> None:
    headings = (Heading("text", "Text"), Heading("number", "Number"))
    rows = [Cell(f"{start}cmd|'/c calc'!A1", -1.5)]

    text = rendering.table(listing("Cells", headings, rows, TableQuery()))

    _, (found, number) = csv.reader(io.StringIO(text))
    assert not found.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert "calc" in found
    assert number == "-1.5"


def test_csv_keeps_commas_quotes_and_lines_in_one_cell() -> None:
    rows = [Cell('a,"b"\nc', 1.0)]

    text = rendering.table(listing("Cells", (Heading("text", "Text"),), rows, TableQuery()))

    assert list(csv.reader(io.StringIO(text))) == [["Text"], ['a,"b"\\x0ac']]


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (0, "0 s"), (119, "119 s"), (120, "2 min"), (90000, "25 h")]
)
def test_a_duration_is_written_in_its_largest_unit(seconds: float | None, text: str) -> None:
    assert rendering.duration(seconds) == text


@pytest.mark.parametrize("at", [None, "", "no time", 1e300, "2026-01-01T00:00:00Z", 0.0])
def test_any_time_can_be_written(at: float | str | None) -> None:
    assert isinstance(rendering.clock(at), str)
