"""Imports a library without the optional libraries that it looks for."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def absent(module: str) -> Iterator[None]:
    """Make imports of `module` fail with ImportError; no effect once it has been imported."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # the import system reads None as absent
    try:
        yield
    finally:
        del sys.modules[module]
