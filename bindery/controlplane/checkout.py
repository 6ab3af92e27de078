"""The source checkout that the control plane and the chart come from.

The Go module and the chart are not part of the wheel: whoever installed only the wheel has a
cluster already, or clones the repository.
"""

import re
from pathlib import Path
from typing import Final

from bindery.controlplane.errors import ControlPlaneError

ROOT: Final = Path(__file__).resolve().parents[2]
"""The checkout, when this is not an installed wheel."""


def directory(name: str) -> Path:
    """Return the directory `name` of the checkout.

    Raises:
        ControlPlaneError: this is an installed wheel.
    """
    path = ROOT / name
    if not path.is_dir():
        raise ControlPlaneError(
            f"{path} does not exist: the demo and the control plane need a source checkout of "
            "Bindery; clone the repository and run `make demo` there"
        )
    return path


def module_version(module: str, required_by: str = "controlplane") -> str:
    """Return the version of the Go module `module` that `go.mod` of `required_by` asks for."""
    text = (directory(required_by) / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", text, re.MULTILINE)
    if found is None:
        raise ControlPlaneError(f"{required_by}/go.mod does not require {module}")
    return found[1]
