"""A person's browser at the page: what it shows, and all that must not happen while it does.

The tests see each request of a page, and allow only its own origin.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Request, Response, sync_playwright

from tests.required import lacking

Scheme = Literal["light", "dark"]
CHROMIUM: Final = Path("/usr/bin/chromium")
WIDTHS: Final = (1280, 400)
SCHEMES: Final[tuple[Scheme, ...]] = ("light", "dark")
_ARGUMENTS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_ANSWER_MS: Final = 120_000
_GRAVE: Final = ("serious", "critical")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a browser with an empty profile; skip where there is none."""
    if not CHROMIUM.exists():
        lacking("Chromium is not installed (Debian: apt-get install chromium)", part="browser")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(_ARGUMENTS))
        yield browser
        browser.close()


@dataclass
class Visit:
    """One page of a browser, and what happened while it was looked at."""

    page: Page
    origin: str
    console: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    """Requests to other origins."""

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self.console.append(message.text))
        self.page.on("pageerror", lambda error: self.console.append(str(error)))
        self.page.on("request", self._asked)
        self.page.on("requestfailed", self._failed)
        self.page.on("response", self._answered)

    def go(self, path: str) -> None:
        """Open the page at `path`, and wait until it is complete."""
        self.page.goto(self.origin + path, wait_until="load")
        self.wait_for_answer()

    def wait_for_answer(self) -> None:
        """Wait until the page no longer shows that its answer is being planned."""
        self.page.locator("[data-asking]").wait_for(state="detached", timeout=_ANSWER_MS)
        self.page.wait_for_load_state("load")

    def text(self, selector: str = "main") -> str:
        """Return the text that a person reads in the first element of `selector`."""
        return " ".join(self.page.locator(selector).first.inner_text().split())

    def check(self) -> None:
        """Check that nothing failed, the console is empty, and no other origin was asked."""
        assert self.elsewhere == []
        assert self.failures == []
        assert self.console == []

    def barriers(self) -> list[str]:
        """Return what axe finds that keeps people out."""
        found: Sequence[dict[str, Any]] = Axe().run(self.page).response["violations"]
        return [
            f"{each['id']}: {node['target']} {node.get('failureSummary', '')}"
            for each in found
            if each["impact"] in _GRAVE
            for node in each["nodes"]
        ]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than its window."""
        return int(
            self.page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
        )

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if f"{parts.scheme}://{parts.netloc}" != self.origin and parts.scheme != "data":
            self.elsewhere.append(request.url)

    def _answered(self, answer: Response) -> None:
        if answer.status >= 400:
            self.failures.append(f"{answer.status} {answer.url}")

    def _failed(self, request: Request) -> None:
        # The stream of news ends when the browser goes on to the next page.
        if not request.url.endswith("/events"):
            self.failures.append(f"{request.url}: {request.failure}")


class Visitor:
    """A person with a session; each look is a new window."""

    def __init__(self, browser: Browser, address: str) -> None:
        """`address`: as `bindery dashboard open` prints it, with the one-time token."""
        parts = urlsplit(address)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self._browser = browser
        context = browser.new_context()
        page = context.new_page()
        page.goto(address)
        page.wait_for_url(self.origin + "/")
        self._cookies = context.storage_state()
        context.close()

    @contextmanager
    def window(self, width: int = 1280, scheme: Scheme = "light") -> Iterator[Visit]:
        """Yield a visit in a window of `width` pixels."""
        context: BrowserContext = self._browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            storage_state=self._cookies,
        )
        try:
            yield Visit(context.new_page(), self.origin)
        finally:
            context.close()
