"""Imports modules without garbage collections.

Used by the commands. Objects of modules live as long as the process, and each collection during
imports would traverse them again: a sixth of the CPU time of `bindery explain`.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Disable collections during the body, and exclude the existing objects from later ones."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
