"""Prepares the control plane's binaries, with visible progress.

Run by `make` as `python -m devcluster` before the tests, because pytest captures their output. It
builds nothing where a cluster or binaries are available. An argument selects other binaries: `next`
those of the next Kubernetes, `operators` those of the operators that the tests run, `metrics`
metrics-server, `nodes` those of real nodes, and the conformance suite of CSI drivers. Without them
the tests that need them are left out, or build them. `nodes` prints the reason if this machine
cannot run real nodes.
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console

from devcluster import build, find
from devcluster.errors import BuildError, ControlPlaneError
from devcluster.realnode import machine

_OTHERS: Final = {
    "next": (build.NEXT, build.NEXT_MODULE),
    "operators": (tuple(build.OPERATORS), build.OPERATORS_MODULE),
    "metrics": (tuple(build.METRICS_PROGRAMS), build.METRICS_MODULE),
}
"""Argument -> binaries, and their Go module."""


def main() -> int:
    """Find the control plane, build missing binaries, and return the exit code."""
    console = Console(stderr=True, highlight=False)
    try:
        if other := _OTHERS.get(" ".join(sys.argv[1:])):
            names, module = other
            build.binaries(names, console.print, module)
            return 0
        if sys.argv[1:] == ["nodes"]:
            build.binaries(tuple(build.CHECK_PROGRAMS), console.print, build.CHECKS_MODULE)
            _build_nodes(console)
            return 0
        with console.status("control plane"), tempfile.TemporaryDirectory() as unused:
            find.find(find.Options(state_dir=Path(unused)), console.print)
    except ControlPlaneError as error:
        console.print(str(error), style="red", markup=False)
        return 1
    return 0


def _build_nodes(console: Console) -> None:
    """Build the programs of real nodes where that is possible; tests report missing ones."""
    reasons = list(machine.lacks())
    if not reasons:
        try:
            build.binaries(tuple(build.NODE_PROGRAMS), console.print)
            names = tuple(build.CONTAINER_PROGRAMS)
            build.binaries(names, console.print, build.CONTAINERS_MODULE)
        except BuildError as error:
            reasons = [str(error)]
    for reason in reasons:
        console.print(f"no real nodes here: {reason}", style="yellow", markup=False)


if __name__ == "__main__":
    sys.exit(main())
