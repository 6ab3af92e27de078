"""The pictures of the pages are readable in light and dark, and have words for those who listen."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES = sorted((DOCS / "pictures").glob("*.svg"))
IMAGE = re.compile(r"!\[([^]]*)\]\(([^)]+\.svg)\)")
SVG = "{http://www.w3.org/2000/svg}"
READ_ON = (
    ("text", "ground"),
    ("text", "soft"),
    ("text", "track"),
    ("minor", "ground"),
    ("minor", "track"),
    ("minor", "soft"),
    ("minor", "warn"),
    ("on-used", "used"),
)
"""Words, and what they stand on."""


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour, by WCAG."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the ratio of contrast of two colours, by WCAG."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_words_stand_out_in_light_and_dark(picture: Path) -> None:
    schemes = re.findall(r":root \{([^}]*)\}", picture.read_text(encoding="utf-8"))
    assert len(schemes) == 2

    for scheme in schemes:
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", scheme))
        weak = [pair for pair in READ_ON if contrast(colours[pair[0]], colours[pair[1]]) < 4.5]
        assert weak == []


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_a_picture_has_a_title_and_no_colour_or_asset_of_its_own(picture: Path) -> None:
    root = ET.parse(picture).getroot()

    for name in ("title", "desc"):
        assert (root.findtext(f"{SVG}{name}") or "").strip()
    own = [each.tag for each in root.iter() if {"fill", "stroke", "href"} & each.attrib.keys()]
    assert own == []


def test_every_picture_is_shown_with_words_in_its_place() -> None:
    shown = {
        Path(link).name: words
        for page in DOCS.glob("*.md")
        for words, link in IMAGE.findall(page.read_text(encoding="utf-8"))
    }

    assert [path.name for path in PICTURES if len(shown.get(path.name, "")) < 40] == []
