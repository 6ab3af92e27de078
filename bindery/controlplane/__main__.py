"""Build what the control plane needs, with visible progress: `python -m bindery.controlplane`.

Called by `make` before the tests, whose own output is captured.
"""

import sys

from rich.console import Console

from bindery.controlplane import build
from bindery.controlplane.errors import ControlPlaneError


def main() -> int:
    """Build all binaries and return the exit code."""
    console = Console(stderr=True, highlight=False)
    try:
        with console.status("control plane"):
            build.binaries(tuple(build.PACKAGES), console.print)
    except ControlPlaneError as error:
        console.print(str(error), style="red", markup=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
