"""Kills a process of Python at a write of a checkpoint: Python imports this module when it starts.

DIE_AT_WRITE is the number of the write, from 1, and a word: `before` or `after` the renaming that
makes the new file the checkpoint. Without it nothing happens.
"""

import os
import signal
from pathlib import Path

_replace = Path.replace
_left, _, _when = os.environ.get("DIE_AT_WRITE", "0 never").partition(" ")
_count = int(_left)


def _dying(self: Path, target: str | os.PathLike[str]) -> Path:
    global _count  # noqa: PLW0603  the writes of a process are counted together
    _count -= 1
    if _count == 0 and _when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    renamed = _replace(self, target)
    if _count == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return renamed


if _when != "never":
    Path.replace = _dying  # type: ignore[method-assign, assignment]  # the process dies in it
