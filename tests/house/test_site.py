"""The site of docs/: no warnings, every page in the navigation, and nothing from elsewhere.

The whole site takes 12 s of processor time. It is built in `make check` too, because nothing else
finds an anchor that leads nowhere.
"""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
LOADED = {"link": "href", "script": "src", "img": "src", "source": "src", "iframe": "src"}
"""Elements that a browser fetches, and the attribute with the address."""


class Page(HTMLParser):
    """The addresses in a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in LOADED and given.get(LOADED[tag]):
            self.loaded.append(str(given[LOADED[tag]]))
        if tag == "a" and given.get("href"):
            self.linked.append(str(given["href"]))


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of the pages in `source` as `make site` does."""
    command = [sys.executable, "-P", "-m", "sphinx", "-W", "--keep-going", "-q"]
    command += ["-c", str(DOCS / "site"), "-b", "html", "-d", str(target / "cache")]
    return subprocess.run(
        [*command, str(source), str(target / "html")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_site_is_complete_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = build(DOCS, tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    html = tmp_path / "html"
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    made = {path.relative_to(html) for path in html.rglob("*.html")}
    assert pages | {Path("index.html"), Path("search.html")} <= made
    assert (html / "searchindex.js").stat().st_size > 10_000
    start = Page(html / "README.html").linked
    top = [page for page in pages if page.parent in (Path(), Path("performance"), Path("notes"))]
    assert [str(page) for page in top if str(page) not in {"README.html", *start}] == []
    for path in sorted(made):
        foreign = [each for each in Page(html / path).loaded if "://" in each or each[:2] == "//"]
        assert foreign == [], path
    for sheet in html.rglob("*.css"):
        assert not re.search(r"@import|url\(", sheet.read_text(encoding="utf-8")), sheet


INDEX = "# Index\n\n## Users\n\n1. [One](one.md): a page\n"


def small(folder: Path, pages: dict[str, str]) -> Path:
    """Write a folder of pages with an index, and return it."""
    folder.mkdir()
    for name, text in {"README.md": INDEX, "one.md": "# One\n\n## Part\n", **pages}.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_small_site_has_the_lists_of_its_index_as_navigation(tmp_path: Path) -> None:
    pages = small(tmp_path / "docs", {"one.md": "# One\n\n[to code](../src/x.py) [here](#one)\n"})

    done = build(pages, tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    html = (tmp_path / "html" / "one.html").read_text(encoding="utf-8")
    assert re.search(r'class="caption"[^>]*>(<span[^>]*>)?Users', html)
    assert "to code" in html
    assert "x.py" not in html


@pytest.mark.parametrize(
    ("pages", "why"),
    [
        ({"one.md": "# One\n\n[gone](gone.md)\n"}, "gone.md"),
        ({"one.md": "# One\n\n[gone](README.md#gone)\n"}, "gone"),
        ({"one.md": "# One\n\n![gone](gone.svg)\n"}, "gone.svg"),
        ({"two.md": "# Two\n"}, "isn't included in any toctree"),
    ],
    ids=["page", "anchor", "picture", "unlisted"],
)
def test_what_leads_nowhere_fails_the_build(
    pages: dict[str, str], why: str, tmp_path: Path
) -> None:
    done = build(small(tmp_path / "docs", pages), tmp_path)

    assert done.returncode != 0
    assert why in done.stderr
