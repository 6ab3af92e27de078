"""The HTML page of a simulation: self-contained, safe, and reproducible."""

import re
from html.parser import HTMLParser
from pathlib import Path

from bindery.api.configuration import SchedulerConfiguration
from bindery.simulation.openb import read_trace
from bindery.simulation.page import make_page
from bindery.simulation.picture import draw
from bindery.simulation.player import play
from bindery.simulation.report import Report, make_report
from tests.simulation.tracefiles import TINY, task, write_trace


def report_of(folder: Path) -> Report:
    return make_report(play(read_trace(folder), SchedulerConfiguration()))


class _Reader(HTMLParser):
    """Collects the tags, and checks that they are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, set[str | None]] = {}
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, set()).add(value)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(
        self,
        tag: str,
        attrs: list[tuple[str, str | None]],  # noqa: ARG002
    ) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_loads_no_resources_and_runs_no_scripts() -> None:
    page = make_page("a title", [("default", report_of(TINY))])

    reader = _Reader()
    reader.feed(page)
    assert not reader.open
    assert not {"script", "link", "img", "iframe", "object"} & set(reader.tags)
    assert not {"src", "href", "onload", "onclick"} & reader.attributes.keys()
    assert not re.search(r"https?:|url\(|@import", page)
    assert reader.tags.count("svg") == 4  # the queues have a chart, as there are several


def test_the_page_has_every_number_as_text_and_in_a_chart() -> None:
    page = make_page("a title", [("default", report_of(TINY))])

    assert "<td>GPU allocation, mean</td>" in page
    assert "<td>vision</td>" in page
    assert "vision, fair" in page
    assert "NaN" not in page
    assert "inf" not in page.lower().replace("information", "")


def test_names_of_the_trace_are_escaped(tmp_path: Path) -> None:
    row = "evil,1000,1024,1,1000,,LS,Running,0,10,0,<script>alert(1)</script>\n"
    folder = write_trace(tmp_path, "n,8000,8192,1,A10\n", task("ok", until=5))
    pods = folder / "pods.csv"
    lines = pods.read_text().splitlines()
    pods.write_text(f"{lines[0]},queue\n{lines[1]},\n{row}")

    page = make_page("<b>title</b>", [("default", report_of(folder))])

    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<b>" not in page


def test_equal_reports_give_equal_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        named = [("default", report_of(TINY)), ("other", report_of(TINY))]
        (tmp_path / f"{name}.html").write_text(make_page("a title", named))
        draw(tmp_path / f"{name}.png", named)

    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    picture = (tmp_path / "one.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert picture == (tmp_path / "two.png").read_bytes()
