"""Debian's packages for the base of an image, without installing them.

apt-get of this machine chooses the packages and their versions, downloads them and checks their
signatures; files that only an installer needs are left out.
"""

import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from devcluster.build import Report
from devcluster.errors import BuildError

WANTED: Final = (
    "base-files",
    "ca-certificates",
    "libpython3-stdlib",
    "libstdc++6",
    "python3-minimal",
)
"""Packages that the programs of the image need; apt-get adds their dependencies."""
_OF_INSTALLERS: Final = (
    "awk", "debconf", "dpkg", "openssl", "perl-base", "readline-common", "tar", "usr-is-merged",
)  # fmt: skip
"""Packages needed only by installation scripts, which do not run here."""
_LINKS: Final = ("bin", "lib", "lib64", "sbin")
"""Directories that Debian has below /usr; older packages still name them at the root."""
_LEFT_OUT: Final = (
    "usr/share/bug/", "usr/share/doc-base/", "usr/share/info/", "usr/share/lintian/",
    "usr/share/locale/", "usr/share/man/", "usr/share/pixmaps/", "usr/share/applications/",
)  # fmt: skip
_DOCUMENTS: Final = "usr/share/doc/"
"""Directory of documents; only licences are kept."""


@dataclass(frozen=True, order=True)
class Package:
    """A file of a package, in one version."""

    name: str
    version: str
    architecture: str
    file: str
    """Its name."""


class Packages:
    """The packages that apt-get chooses now."""

    def __init__(self, cache: Path) -> None:
        """Prepare `cache`, where files of packages stay.

        Raises:
            BuildError: this machine has no apt-get.
        """
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise BuildError(
                "the base of the image is made of Debian's packages, and there is no apt-get here; "
                "name another base, such as BASE=python:3.13-slim"
            )
        self._cache = cache / "packages"
        self._nothing = cache / "no-packages"
        """apt-get lists only packages that it would download, so it gets an empty directory."""
        for directory in (self._cache, self._nothing):
            (directory / "partial").mkdir(parents=True, exist_ok=True)
        self._status = self._cache / "status"
        self._status.write_text("".join(_installed(name) for name in _OF_INSTALLERS))

    def chosen(self) -> tuple[Package, ...]:
        """Return the packages of the base, sorted by name.

        Raises:
            BuildError: apt-get does not know one of them.
        """
        found = []
        for line in self._apt(self._nothing, "--print-uris").splitlines():
            if line.startswith("'"):
                file = line.split()[1]
                name, version, architecture = file.removesuffix(".deb").split("_")
                found.append(Package(name, unquote(version), architecture, file))
        return tuple(sorted(found))

    def download(self, report: Report) -> None:
        """Download the packages of `chosen` that are not in the cache.

        Raises:
            BuildError: a package cannot be downloaded.
        """
        report("downloading Debian's packages")
        self._apt(self._cache, "--download-only")

    def unpack(self, package: Package, root: Path) -> None:
        """Unpack the files of a package below `root`, all of them below `usr`, `etc` and `var`.

        The description of the package and the list of its files are written below var/lib/dpkg,
        where scanners of images look for them.
        """
        files = []
        archive = self._cache / package.file
        command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE) as process,  # noqa: S603  constant
            tarfile.open(fileobj=process.stdout, mode="r|") as tar,
        ):
            for member in _kept(tar):
                _place(tar, member, root)
                files.append(f"/{member.name}\n")
        if process.returncode != 0:
            raise BuildError(f"{archive} cannot be unpacked")
        described = root / "var/lib/dpkg/status.d" / package.name
        described.write_text(_run(["dpkg-deb", "--field", str(archive)]), encoding="utf-8")
        listed = root / "var/lib/dpkg/info" / f"{package.name}.list"
        listed.write_text("".join(sorted(files)), encoding="utf-8")

    def _apt(self, archives: Path, *arguments: str) -> str:
        options = {
            "Dir::State::status": self._status,
            "Dir::Cache::archives": archives,
            "Debug::NoLocking": "true",
            "APT::Install-Recommends": "false",
            # Downloads go to a directory of this user.
            "APT::Sandbox::User": "",
        }
        given = [f"--option={key}={value}" for key, value in options.items()]
        try:
            return _run(["apt-get", "--quiet=2", "--yes", *given, *arguments, "install", *WANTED])
        except BuildError as error:
            raise BuildError(f"{error}\nIf apt-get has no lists yet: apt-get update") from error


def prepare(root: Path) -> None:
    """Make the directories that Debian's packages expect to exist."""
    for name in _LINKS:
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("var/lib/dpkg/status.d", "var/lib/dpkg/info", "tmp"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)


def _kept(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the entries of a package that an image needs, with their places below `usr`."""
    for member in tar:
        path = member.name.removeprefix("./").rstrip("/")
        if path.split("/")[0] in _LINKS:
            path = f"usr/{path}"
        is_text = path.startswith(_DOCUMENTS) and not path.endswith("/copyright")
        if member.isdir() or is_text or path.startswith(_LEFT_OUT):
            continue
        member.name = path
        yield member


def _place(tar: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    target = root / member.name
    target.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        target.symlink_to(member.linkname)
    elif member.islnk():
        shutil.copy2(root / _merged(member.linkname), target)
    elif (content := tar.extractfile(member)) is not None:
        with target.open("wb") as file:
            shutil.copyfileobj(content, file)
        # No program of the image may change its user.
        target.chmod(member.mode & 0o755)


def _merged(path: str) -> str:
    path = path.removeprefix("./")
    return f"usr/{path}" if path.split("/")[0] in _LINKS else path


def _installed(name: str) -> str:
    """Return an entry that marks a package as installed for apt-get."""
    return (
        f"Package: {name}\nStatus: install ok installed\nVersion: 999:0\nArchitecture: all\n"
        "Multi-Arch: foreign\nMaintainer: none\nDescription: not needed in an image\n\n"
    )


def _run(command: list[str]) -> str:
    result = subprocess.run(  # noqa: S603  constant arguments
        command, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise BuildError(f"{' '.join(command[:1])}: {result.stderr.strip()}")
    return result.stdout
