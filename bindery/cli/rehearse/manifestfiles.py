"""Reads the manifests for a command: files, folders and stdin. Used by `rehearsing`."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bindery.api.yamlfile import MOST_BYTES, Document, FileError, parse, read

STDIN: Final = "-"
_SUFFIXES: Final = frozenset({".json", ".yaml", ".yml"})


def read_manifests(paths: Sequence[Path], *, recursive: bool) -> list[Document]:
    """Return the documents of `paths`, in their order; of a folder, by the names of its files.

    Raises:
        FileError: a file cannot be read, is empty or is not YAML, or a folder has no manifests.
    """
    return [document for path in paths for document in _documents(path, recursive=recursive)]


def _documents(path: Path, *, recursive: bool) -> Iterator[Document]:
    if str(path) == STDIN:
        yield from _some(parse(_stdin(), "stdin"), "stdin")
        return
    files = list(_files(path, recursive=recursive))
    for file in files:
        found = read(file)
        yield from found if path.is_dir() else _some(found, str(path))


def _stdin() -> str:
    """Return the text of stdin.

    Raises:
        FileError: stdin is too large, or not text.
    """
    content = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise FileError("stdin", 1, f"it is larger than {MOST_BYTES // 2**20} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise FileError("stdin", 1, f"cannot be read: {error}") from error


def _some(documents: list[Document], name: str) -> list[Document]:
    if not documents:
        raise FileError(name, 1, "the file is empty")
    return documents


def _files(path: Path, *, recursive: bool) -> Iterator[Path]:
    """Yield `path`, or the manifests in the folder `path`, chosen as by kubectl."""
    if not path.is_dir():
        yield path
        return
    found = sorted(path.rglob("*") if recursive else path.iterdir())
    manifests = [file for file in found if file.suffix in _SUFFIXES and file.is_file()]
    if not manifests:
        hint = "" if recursive else "; -R looks in the folders below it"
        raise FileError(str(path), 1, f"this folder has no *.yaml, *.yml or *.json file{hint}")
    yield from manifests
