"""Links of the Markdown pages are valid, and the package declares its type information."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
LINK = re.compile(r"\]\(([^)#\s]+)")
MAKE = re.compile(r"(?:^    |`)make ([a-z-]+)", re.MULTILINE)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_make_targets_of_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in LINK.findall(text) if "://" not in link]

    assert [link for link in links if not (page.parent / link).exists()] == []
    assert [target for target in MAKE.findall(text) if target not in TARGETS] == []


def test_every_page_is_linked_from_another() -> None:
    linked = {
        (page.parent / link).resolve() for page in PAGES for link in LINK.findall(page.read_text())
    }
    decisions = {page for page in PAGES if page.parent.name == "decisions"}

    alone = set(PAGES) - linked - decisions - {ROOT / "README.md"}
    assert alone == set()


def test_the_package_contains_the_marker_of_type_information() -> None:
    assert (files("bindery") / "py.typed").is_file()
