"""A scheduler plugin that holds planning up at one job until it is let go.

The tests put this folder on PYTHONPATH, as for the plugin beside it.
"""

import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

_POLL_S = 0.02


class Arguments(BaseModel, extra="forbid"):
    job: str
    """The job at which planning waits."""
    begun: Path
    """The plugin creates this file when it begins to wait."""
    go_on: Path
    """The plugin waits for this file."""


class Sluggard:
    name = "sluggard"
    arguments = Arguments

    def __init__(self, arguments: Arguments) -> None:
        self._job, self._begun, self._go_on = arguments.job, arguments.begun, arguments.go_on

    def invalid(self, session: object, job: Any) -> None:  # noqa: ARG002
        """Find no job invalid, but return late for the configured job."""
        if job.key.name == self._job:
            self._begun.touch()
            while not self._go_on.exists():
                time.sleep(_POLL_S)
