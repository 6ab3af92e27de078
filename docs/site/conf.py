"""Sphinx's settings for the site of docs/ (`make site`): offline, and warnings are errors.

The pages are plain Markdown, as a code host shows them. Their indexes, the README of a folder, give
the navigation: each list below a heading is a part of it. So a page that no index lists, or a link
that leads nowhere, is a warning of Sphinx, and the build fails.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

project = "Bindery"
author = "The Bindery authors"
extensions = ["myst_parser"]
root_doc = "README"
exclude_patterns = ["site"]
nitpicky = True
myst_heading_anchors = 4
highlight_language = "none"
html_theme = "theme"
html_theme_path = ["."]
html_copy_source = False
html_show_search_summary = False  # it would fetch pages, which a browser refuses for files
html_title = "Bindery"
html_additional_pages = {"index": "index.html"}
html_use_index = False

_LINK = re.compile(r"(?<!!)\[([^]]+)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_LISTED = re.compile(r"^(?:-|\d+\.) .*$", re.MULTILINE)


def setup(app: Sphinx) -> None:
    """Let the indexes name the parts, and leave out links to the source."""
    app.connect("source-read", _read)


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    """Change the text of a page, which Sphinx has just read, for the site."""
    docs = Path(app.srcdir)
    folder = (docs / page).parent

    def kept(link: re.Match[str]) -> str:
        """Return the link, or its words if it leads out of docs/, where the site has no page."""
        target = link[2]
        inside = "://" in target or (folder / target).resolve().is_relative_to(docs)
        return link[0] if inside else link[1]

    text = _LINK.sub(kept, source[0])
    if page == "README" or page.endswith("/README"):
        text += "".join(_part(section) for section in source[0].split("\n## "))
    source[0] = text


def _part(section: str) -> str:
    """Return the navigation that the list of a section gives."""
    lines = _LISTED.findall(section)
    pages = [link[2].removesuffix(".md") for line in lines for link in _LINK.finditer(line)]
    title = section.partition("\n")[0]
    caption = "" if title.startswith("# ") else f":caption: {title}\n"
    listed = "\n".join(page for page in pages if not page.startswith("../"))
    return f"\n\n```{{toctree}}\n{caption}:hidden:\n\n{listed}\n```\n" if listed else ""
