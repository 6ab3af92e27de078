"""The directory with the CDI files: written whole or not at all, and read again after a restart."""

import os
from collections.abc import Mapping
from pathlib import Path

import structlog

from bindery.nodeagent.gpuclaims import cdi
from bindery.nodeagent.gpuclaims.cdi import PreparedFile, UnreadableSpecError

_NEW = ".bindery-"
"""Prefix of files that are being written; the container runtime reads only *.json and *.yaml."""

log = structlog.get_logger(__name__)


class SpecFiles:
    """The CDI files of prepared claims in `directory`, which other drivers use too."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        for left in directory.glob(f"{_NEW}*"):  # a write that was killed
            left.unlink(missing_ok=True)

    def write(self, uid: str, content: str) -> bool:
        """Write the file of a claim; return whether it had another content.

        Raises:
            OSError: it cannot be written.
        """
        path = self._directory / cdi.file_name(uid)
        try:
            if path.read_text(encoding="utf-8") == content:
                return False
        except (FileNotFoundError, UnicodeDecodeError):
            pass
        new = path.with_name(f"{_NEW}{uid}")
        with new.open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        return True

    def remove(self, uid: str) -> bool:
        """Remove the file of a claim; return whether there was one.

        Raises:
            OSError: it cannot be removed.
        """
        try:
            (self._directory / cdi.file_name(uid)).unlink()
        except FileNotFoundError:
            return False
        return True

    def uids(self) -> frozenset[str]:
        """Return the claims that have a file, also those whose file cannot be read."""
        found = (cdi.uid_of(path.name) for path in self._directory.iterdir())
        return frozenset(uid for uid in found if uid is not None)

    def prepared(self) -> Mapping[str, PreparedFile]:
        """Return the prepared claims, by UID; files that cannot be read are left out."""
        found = {}
        for path in sorted(self._directory.iterdir()):
            uid = cdi.uid_of(path.name)
            if uid is None:
                continue
            try:
                found[uid] = cdi.read(uid, path.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, UnreadableSpecError) as error:
                log.warning("a CDI file of a claim cannot be read", file=str(path),
                            error=str(error))  # fmt: skip
        return found
