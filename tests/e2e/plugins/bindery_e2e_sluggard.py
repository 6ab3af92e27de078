"""A scheduler plugin that holds planning up at one job until it is let go.

The tests put this folder on PYTHONPATH, as for the plugin beside it.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_POLL_S = 0.02


class Sluggard:
    """Arguments: `job`, where it waits; `begun`, a file it writes; `go_on`, one it waits for."""

    name = "sluggard"

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._job = str(arguments["job"])
        self._begun, self._go_on = Path(arguments["begun"]), Path(arguments["go_on"])

    def invalid(self, session: object, job: Any) -> None:  # noqa: ARG002
        """Say nothing against any job, but say it late."""
        if job.key.name == self._job:
            self._begun.touch()
            while not self._go_on.exists():
                time.sleep(_POLL_S)
