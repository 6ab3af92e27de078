"""A browser for each module, and `bindery dashboard open` on a file."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.visiting import Visitor, chromium

BUSY = Path(__file__).parents[2] / "examples" / "scenarios" / "busy.yaml"


@contextmanager
def opened(file: Path) -> Iterator[str]:
    """Run `bindery dashboard open` on `file`; yield the address that it prints."""
    command = [sys.executable, "-m", "bindery.cli.main", "dashboard", "open", "--no-browser"]
    with subprocess.Popen(
        [*command, f"--file={file}"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), "the page did not start"
            yield address
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def visitor(browser: Browser) -> Iterator[Visitor]:
    """A person who looks at the busy cluster."""
    with opened(BUSY) as address:
        yield Visitor(browser, address)
