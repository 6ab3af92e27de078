"""Installs definitions of other people's kinds in the control plane of the tests."""

import time
from collections.abc import Sequence
from pathlib import Path

from devcluster import published
from devcluster.errors import ControlPlaneError
from devcluster.plane import ControlPlane

_LOOKS = 50
_LOOK_S = 0.2
_APPLY_S = 240.0
"""Generous: the largest definitions take the API server seconds each on a busy machine."""


def install_files(plane: ControlPlane, files: Sequence[Path]) -> None:
    """Install the definitions in `files`, and wait until they are served."""
    chosen = [f"--filename={file}" for file in files]
    # They are too large for the annotation of a client-side apply.
    plane.kubectl("apply", "--server-side", "--force-conflicts", *chosen, timeout_s=_APPLY_S)
    for attempt in range(_LOOKS):
        try:
            plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *chosen)
        except ControlPlaneError:  # kubectl fails on a definition that has no conditions yet
            if attempt == _LOOKS - 1:
                raise
            time.sleep(_LOOK_S)
        else:
            return


def install_node_topologies(plane: ControlPlane) -> None:
    """Install the published definition of NodeResourceTopology."""
    install_files(plane, [published.NODE_TOPOLOGY.fetch(print) / "crd.yaml"])
