"""Imports a library without its optional dependencies."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def absent(module: str) -> Iterator[None]:
    """Make imports of `module` fail with ImportError; no effect after it has been imported."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # the import system reads None as absent
    try:
        yield
    finally:
        del sys.modules[module]
