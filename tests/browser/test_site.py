"""The site of docs/ in a real browser: no page keeps people out, at both widths, light and dark."""

import shutil
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser

from tests.browser.visiting import SCHEMES, WIDTHS, Scheme, Visit
from tests.house.test_site import DOCS, build
from tests.sizes import IS_LONG

FEW = ("README", "commands", "dashboard", "topology")
"""They have lists, long tables, code, and pictures."""


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; few of its pages, with links that lead nowhere, unless tests are long."""
    folder, source = tmp_path_factory.mktemp("site"), DOCS
    if not IS_LONG:
        source = folder / "docs"
        source.mkdir()
        shutil.copytree(DOCS / "pictures", source / "pictures")
        for name in FEW:
            shutil.copy(DOCS / f"{name}.md", source)
    build(source, folder)
    return folder / "html"


@pytest.fixture(scope="module")
def origin(html: Path) -> Iterator[str]:
    """The address of a server of the site."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(html))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(("width", "scheme"), list(zip(WIDTHS, SCHEMES, strict=True)))
def test_no_page_of_the_site_keeps_a_person_out(
    browser: Browser, html: Path, origin: str, width: int, scheme: Scheme
) -> None:
    pages = sorted(str(each.relative_to(html)) for each in html.rglob("*.html"))
    pages.remove("index.html")  # it leads to the README
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    visit = Visit(context.new_page(), origin)
    problems = {}
    for page in pages:
        visit.go(f"/{page}")
        found = visit.barriers()
        if visit.overflow() > 0:
            found.append(f"{visit.overflow()} pixels wider than the window")
        if found:
            problems[page] = found
    context.close()

    assert len(pages) > len(FEW), "the search page is there, too"
    assert problems == {}
    visit.check()
