"""Where certificates are kept: one file for each pair, and a link to the current one."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from bindery.nodecore.certificates.requests import CertificateError, Leaf, leaf_of

CLIENT_PREFIX: Final = "kubelet-client"
SERVER_PREFIX: Final = "kubelet-server"

_CURRENT: Final = "current"
_UPDATED: Final = "updated"
_PEM: Final = ".pem"
_KEY_FILE_MODE: Final = 0o600
_TIME_FORMAT: Final = "%Y-%m-%d-%H-%M-%S"


class NoPairError(CertificateError):
    """There is no certificate yet; the node agent must request one."""


@dataclass(frozen=True)
class Pair:
    """A certificate with its chain, and its private key, in PEM."""

    certificate: bytes
    key: bytes
    leaf: Leaf


class LinkedFiles(Protocol):
    """Files of a directory, some of which are symbolic links to others."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, through a link; None if there is none."""

    def write(self, name: str, blob: bytes) -> None:
        """Write a file that only its owner can read, and flush it."""

    def exists(self, name: str) -> bool:
        """Return whether there is a file or a link, even a broken one."""

    def is_link(self, name: str) -> bool:
        """Return whether it is a link."""

    def link(self, name: str, target: str) -> None:
        """Make a link to another file of the directory."""

    def rename(self, name: str, to: str) -> None:
        """Rename a file or link, replacing `to`."""

    def remove(self, name: str) -> None:
        """Remove a file or link."""


class DirectoryFiles:
    """The files of a directory on the disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, through a link; None if there is none."""
        try:
            return (self._directory / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, blob: bytes) -> None:
        """Write a file that only its owner can read, and flush it."""
        flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY
        handle = os.open(self._directory / name, flags, _KEY_FILE_MODE)
        with os.fdopen(handle, "wb") as file:
            file.write(blob)
            file.flush()
            os.fsync(file.fileno())

    def exists(self, name: str) -> bool:
        """Return whether there is a file or a link, even a broken one."""
        return os.path.lexists(self._directory / name)

    def is_link(self, name: str) -> bool:
        """Return whether it is a link."""
        return (self._directory / name).is_symlink()

    def link(self, name: str, target: str) -> None:
        """Make a link to another file of the directory."""
        (self._directory / name).symlink_to((self._directory / target).absolute())

    def rename(self, name: str, to: str) -> None:
        """Rename a file or link, replacing `to`."""
        (self._directory / name).replace(self._directory / to)

    def remove(self, name: str) -> None:
        """Remove a file or link."""
        (self._directory / name).unlink()


class CertificateStore:
    """The pairs of one kind. A rotation that was interrupted is completed at the start.

    Args:
        files: the directory.
        prefix: how the names of the files start.
        clock: returns seconds since 1970.

    Raises:
        CertificateError: a file is where a link should be.
    """

    def __init__(self, files: LinkedFiles, prefix: str, clock: Callable[[], float]) -> None:
        self._files = files
        self._prefix = prefix
        self._clock = clock
        current, updated = self._name(_CURRENT), self._name(_UPDATED)
        if files.read(current) is None and files.exists(updated):
            self._check_link(updated)
            files.rename(updated, current)

    def current(self) -> Pair:
        """Return the current pair.

        Raises:
            NoPairError: there is none.
            CertificateError: it cannot be read.
        """
        name = self._name(_CURRENT)
        blob = self._files.read(name)
        if blob is not None:
            return pair_of(blob, blob)
        certificate = self._files.read(f"{self._prefix}.crt")
        key = self._files.read(f"{self._prefix}.key")
        if certificate is None or key is None:
            raise NoPairError(f'no cert/key files read at "{name}"')
        return pair_of(certificate, key)

    def update(self, certificate: bytes, key: bytes) -> Pair:
        """Write a pair and make it the current one.

        Raises:
            CertificateError: it cannot be read, or a file is where a link should be.
        """
        pair = pair_of(certificate, key)
        current, updated = self._name(_CURRENT), self._name(_UPDATED)
        now = datetime.fromtimestamp(self._clock(), UTC)
        name = self._name(now.strftime(_TIME_FORMAT))
        self._files.write(name, pair.certificate + pair.key)
        for link in (current, updated):
            if self._files.exists(link):
                self._check_link(link)
        if self._files.exists(updated):
            self._files.remove(updated)
        self._files.link(updated, name)
        self._files.rename(updated, current)
        return pair

    def _name(self, qualifier: str) -> str:
        return f"{self._prefix}-{qualifier}{_PEM}"

    def _check_link(self, name: str) -> None:
        if not self._files.is_link(name):
            raise CertificateError(f'expected "{name}" to be a symlink but it is a file')


def pair_of(certificate: bytes, key: bytes) -> Pair:
    """Return a pair of PEM data; each may have other blocks too.

    Raises:
        CertificateError: there is no certificate or key, or they do not belong together.
    """
    leaf = leaf_of(certificate)
    chain = x509.load_pem_x509_certificates(certificate)
    try:
        private = serialization.load_pem_private_key(_key_block(key), password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"invalid key data: {error}") from error
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*form) != chain[0].public_key().public_bytes(*form):
        raise CertificateError("private key does not match public key")
    blocks = b"".join(one.public_bytes(serialization.Encoding.PEM) for one in chain)
    return Pair(blocks, _key_block(key), leaf)


def _key_block(pem: bytes) -> bytes:
    """Return the block of the private key."""
    lines = pem.splitlines(keepends=True)
    marks = [at for at, line in enumerate(lines) if line.startswith(b"-----") and b" KEY" in line]
    if len(marks) < 2:
        raise CertificateError("invalid key data")
    return b"".join(lines[marks[0] : marks[1] + 1])
