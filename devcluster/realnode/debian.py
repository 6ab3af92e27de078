"""Downloads and unpacks Debian's packages without installing them.

Used for the images of real nodes. apt-get checks the signatures of its archive.
"""

import shutil
import subprocess
from pathlib import Path

from devcluster.build import Report
from devcluster.errors import BuildError


def unpacked(package: str, cache: Path, report: Report) -> Path:
    """Return a directory with the files of `package`, downloaded if needed.

    Raises:
        BuildError: the package cannot be downloaded; the text has the reason.
    """
    target = cache / "debian" / package
    if target.exists():
        return target
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise BuildError(f"the package {package} of Debian is needed, and apt-get is not here")
    report(f"downloading the package {package}")
    scratch = target.with_suffix(".new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    _run(["apt-get", "download", "--quiet=2", package], scratch)
    (archive,) = scratch.glob("*.deb")
    _run(["dpkg-deb", "--extract", archive.name, "files"], scratch)
    (scratch / "files").rename(target)
    shutil.rmtree(scratch)
    return target


def _run(command: list[str], directory: Path) -> None:
    result = subprocess.run(  # noqa: S603  constant arguments
        command, cwd=directory, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise BuildError(f"{' '.join(command)}: {result.stderr.strip()}")
