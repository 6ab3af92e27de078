"""The checkpoint manager: named blobs in a store that writes each of them whole."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar

from bindery.nodecore.errors import CheckpointError, CheckpointNotFoundError, RestoreError

TEMPORARY_PREFIX: Final = "."
_TEMPORARY_SUFFIX: Final = ".new"
_TEMPORARY_MODE: Final = 0o600
T = TypeVar("T")

_LONGEST_KEY: Final = 250
_KEY: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class Store(Protocol):
    """Keeps blobs by key; a write replaces the blob whole or not at all."""

    def read(self, key: str) -> bytes | None:
        """Return the blob of `key`, None when there is none."""

    def write(self, key: str, blob: bytes) -> None:
        """Replace the blob of `key`."""

    def remove(self, key: str) -> None:
        """Remove the blob of `key` if there is one."""

    def keys(self) -> list[str]:
        """Return all keys in ascending order."""


class MemoryStore:
    """A store in memory, for hollow nodes and tests."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def read(self, key: str) -> bytes | None:
        """Return the blob of `key`, None when there is none."""
        return self.blobs.get(key)

    def write(self, key: str, blob: bytes) -> None:
        """Replace the blob of `key`."""
        self.blobs[key] = blob

    def remove(self, key: str) -> None:
        """Remove the blob of `key` if there is one."""
        self.blobs.pop(key, None)

    def keys(self) -> list[str]:
        """Return all keys in ascending order."""
        return sorted(self.blobs)


class DirectoryStore:
    """A directory with one file for each key, as the kubelet has it.

    A write goes to a hidden file in the same directory, is flushed to the disk, and is renamed:
    after a crash the file has the old content or the new content. One process writes.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)

    def read(self, key: str) -> bytes | None:
        """Return the blob of `key`, None when there is none."""
        try:
            return (self._directory / key).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, key: str, blob: bytes) -> None:
        """Replace the blob of `key`."""
        temporary = self._directory / f"{TEMPORARY_PREFIX}{key}{_TEMPORARY_SUFFIX}"
        try:
            handle = os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, _TEMPORARY_MODE)
            with os.fdopen(handle, "wb") as file:
                file.write(blob)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._directory / key)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def remove(self, key: str) -> None:
        """Remove the blob of `key` if there is one."""
        (self._directory / key).unlink(missing_ok=True)

    def remove_unfinished(self) -> None:
        """Remove the files of writes that a kill has cut off."""
        for each in self._directory.glob(f"{TEMPORARY_PREFIX}*{_TEMPORARY_SUFFIX}"):
            each.unlink(missing_ok=True)

    def keys(self) -> list[str]:
        """Return all keys in ascending order; hidden files are unfinished writes."""
        names = (path.name for path in self._directory.iterdir())
        return sorted(name for name in names if not name.startswith(TEMPORARY_PREFIX))


class CheckpointManager:
    """Creates, returns, removes and lists checkpoints in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, key: str, blob: bytes) -> None:
        """Write the checkpoint `key`; raises CheckpointError if the key is not allowed."""
        self._store.write(_checked(key), blob)

    def get(self, key: str) -> bytes:
        """Return the checkpoint `key`.

        Raises:
            CheckpointNotFoundError: there is none.
            CheckpointError: the key is not allowed.
        """
        blob = self._store.read(_checked(key))
        if blob is None:
            raise CheckpointNotFoundError
        return blob

    def remove(self, key: str) -> None:
        """Remove the checkpoint `key`, if any; raises CheckpointError for a wrong key."""
        self._store.remove(_checked(key))

    def list(self) -> list[str]:
        """Return the names of all checkpoints."""
        return self._store.keys()


def restored(
    checkpoints: CheckpointManager, file: str, decode: Callable[[bytes], T], owner: str
) -> T | None:
    """Return the state of a manager from its checkpoint, or None if there is no checkpoint yet.

    `decode` raises CheckpointError. `owner`: the manager, as the error names it.

    Raises:
        RestoreError: the file cannot be used; the administrator has to drain the node.
    """
    try:
        return decode(checkpoints.get(file))
    except CheckpointNotFoundError:
        return None
    except CheckpointError as error:
        raise RestoreError(
            f"could not restore state from checkpoint: {error}, please drain this node and delete "
            f'the {owner} checkpoint file "{file}" before restarting Kubelet'
        ) from error


def _checked(key: str) -> str:
    if len(key) > _LONGEST_KEY or _KEY.fullmatch(key) is None:
        raise CheckpointError(f'invalid key: "{key}"')
    return key
