"""The indexes of docs/ and of the decisions are complete, and pages link to the next page."""

import re
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DECISIONS = DOCS / "decisions"
LINK = re.compile(r"\]\(([^)#\s]+)\)")
STEP = re.compile(r"^\d+\. \[[^]]+\]\(([^)]+)\): \S", re.MULTILINE)
NEXT = re.compile(r"^Next: \[[^]]+\]\(([^)]+)\)$", re.MULTILINE)


def parts() -> list[list[Path]]:
    """Return the pages of each numbered list of the index, in their order."""
    sections = (DOCS / "README.md").read_text(encoding="utf-8").split("\n## ")
    found = [[DOCS / link for link in STEP.findall(section)] for section in sections]
    return [pages for pages in found if pages]


def next_of(page: Path) -> list[Path]:
    """Return the pages that the lines `Next:` of `page` name."""
    links = NEXT.findall(page.read_text(encoding="utf-8"))
    return [(page.parent / link).resolve() for link in links]


def test_every_page_has_one_line_in_the_index() -> None:
    index = DOCS / "README.md"
    lines = re.findall(r"^(?:-|\d+\.) .*$", index.read_text(encoding="utf-8"), re.MULTILINE)
    listed = [(DOCS / link).resolve() for line in lines for link in LINK.findall(line)]
    pages = {page for page in DOCS.rglob("*.md") if page.parent != DECISIONS}

    assert pages - {index} - set(listed) == set()
    assert len(listed) == len(set(listed))
    assert sum(map(len, parts())) >= 40


def test_every_page_links_to_the_next_page_of_its_part() -> None:
    wrong = [
        f"{page.name}: {[each.name for each in next_of(page)]} in place of {following.name}"
        for pages in parts()
        for page, following in pairwise(pages)
        if next_of(page) != [following.resolve()]
    ]

    assert wrong == []


def test_the_last_page_of_a_part_has_no_next_page() -> None:
    assert [page for *_, page in parts() if next_of(page)] == []


def test_every_decision_has_its_title_in_the_index() -> None:
    index = (DECISIONS / "README.md").read_text(encoding="utf-8").splitlines()
    expected = []
    for page in sorted(DECISIONS.glob("[0-9]*.md")):
        heading = page.read_text(encoding="utf-8").partition("\n")[0]
        title = re.sub(r"^# \d+[.:]? *", "", heading)
        expected.append(f"- [{page.name[:3]}]({page.name}): {title[:1].upper()}{title[1:]}")

    assert [line for line in index if line.startswith("- ")] == expected
