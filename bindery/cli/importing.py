"""Import what a command needs without garbage collections.

Used by the commands. What modules define lives as long as the process, and collections while many
modules are imported would walk it again and again: a sixth of the CPU time of `bindery explain`.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Collect no garbage meanwhile, and never look at what exists by then."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
