"""The checkout of the repository, with the Go modules, the chart and the examples."""

import re
from pathlib import Path
from typing import Final

from devcluster.errors import ControlPlaneError

ROOT: Final = Path(__file__).resolve().parents[1]


def module_version(module: str, required_by: str = "controlplane") -> str:
    """Return the version of the Go module `module` in `go.mod` of `required_by`."""
    text = (ROOT / required_by / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise ControlPlaneError(f"{required_by}/go.mod does not require {module}")
    return found[1]
