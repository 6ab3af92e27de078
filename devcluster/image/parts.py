"""The parts of an image, with their sizes."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from devcluster.image.python import Python

PYTHON: Final = "pypi"
DEBIAN: Final = "deb"
COMPILED: Final = "compiled standard library"
REST: Final = "files of no package"


@dataclass(frozen=True)
class Part:
    """A package in an image."""

    kind: str
    """`deb`, `pypi`, or empty for files outside packages."""
    name: str
    version: str
    size: int
    """Size of its files and of the modules compiled from them, in bytes."""


def of(root: Path, own: Path, python: Python) -> list[Part]:
    """Return all parts of an image, the largest first.

    `root`: the files of all layers but the last; `own`: the files of the last layer.
    """
    found = [
        Part(PYTHON, each.name, each.version, _size_of_distribution(each, tree / python.packages))
        for tree in (root, own)
        for each in metadata.distributions(path=[str(tree / python.packages)])
    ]
    sizes = _sizes_by_package(root)
    found += [Part(DEBIAN, name, version, sizes[name]) for name, version in debian(root)]
    compiled = sum(_size(path) for path in (root / python.library).rglob("*.pyc"))
    found.append(Part("", COMPILED, python.version, compiled))
    rest = sum(map(_size, (root, own))) - sum(each.size for each in found)
    found.append(Part("", REST, "", rest))
    return sorted(found, key=lambda part: (-part.size, part.name))


def debian(root: Path) -> Iterator[tuple[str, str]]:
    """Yield name and version of each Debian package in an image, from the image's own list."""
    lists = [root / "var/lib/dpkg/status", *sorted((root / "var/lib/dpkg/status.d").glob("*"))]
    for path in lists:
        if path.is_file():
            for entry in path.read_text(encoding="utf-8").split("\n\n"):
                fields = dict(line.split(": ", 1) for line in entry.splitlines() if ": " in line)
                if "Package" in fields and "installed" in fields.get("Status", "installed"):
                    yield fields["Package"], fields["Version"]


def _sizes_by_package(root: Path) -> Counter[str]:
    """Return the size of the files of each package of Debian."""
    sizes: Counter[str] = Counter()
    for path in (root / "var/lib/dpkg/info").glob("*.list"):
        name = path.stem.partition(":")[0]
        for line in path.read_text(encoding="utf-8").splitlines():
            sizes[name] += _size_of_file(root / line.lstrip("/"))
    return sizes


def _size_of_distribution(distribution: metadata.Distribution, site: Path) -> int:
    """Return the size of the directories and files of a Python package."""
    tops = {path.parts[0] for path in distribution.files or () if ".." not in path.parts}
    return sum(_size(site / top) for top in tops)


def _size(path: Path) -> int:
    """Return the size of all files below `path`, which may be a file itself."""
    return _size_of_file(path) + sum(_size_of_file(each) for each in path.rglob("*"))


def _size_of_file(path: Path) -> int:
    return path.lstat().st_size if path.is_file() and not path.is_symlink() else 0
