"""Kubeconfig files: contexts with their clusters and users.

Read by `access.credentials`. The format is `Config` of client-go 0.36 (tools/clientcmd/api/v1), and
files are merged by client-go's rules: of two entries with one name the first is used, relative
paths start at the directory of their file, and data has priority over a path. Every error contains
the name of the file.
"""

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bindery.kube.errors import ConfigurationError

_KINDS: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}
"""List in the file -> key of each entry's content."""


@dataclass(frozen=True)
class Entry:
    """One cluster, context or user, with its file."""

    name: str
    value: Mapping[str, Any]
    file: Path

    def text(self, key: str) -> str:
        """Return the text at `key`; empty if the key is absent.

        Raises:
            ConfigurationError: the value is not a text.
        """
        value = self.value.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(f"{key} is not a string")
        return value

    def path(self, key: str) -> Path | None:
        """Return the path at `key`, relative to the entry's file; None if the key is absent."""
        text = self.text(key)
        return self.file.parent / Path(text).expanduser() if text else None

    def content(self, key: str) -> bytes | None:
        """Return the data at `key`-data, or the file's content at `key`; None without both.

        Raises:
            ConfigurationError: the data is not base64, or the file cannot be read.
        """
        data = self.text(f"{key}-data")
        if data:
            try:
                return base64.b64decode(data, validate=True)
            except (binascii.Error, ValueError) as error:
                raise self.error(f"{key}-data is not base64") from error
        path = self.path(key)
        return read_file(path, self.error) if path is not None else None

    def error(self, problem: str) -> ConfigurationError:
        """Return an error about this entry."""
        return ConfigurationError(f"kubeconfig {self.file}: {self.name}: {problem}")


@dataclass(frozen=True)
class Context:
    """A cluster and a user."""

    cluster: Entry
    user: Entry | None
    """None for the anonymous user."""
    namespace: str = ""
    """The default namespace of commands; empty if the context has none."""


def read(path: Path | None = None, name: str | None = None) -> Context:
    """Return the context `name`, by default the current one.

    `path`: the only file to read; None: the files of $KUBECONFIG, or ~/.kube/config.

    Raises:
        ConfigurationError: the file or context does not exist, or cannot be used.
    """
    merged = _merged(path)
    wanted = name or merged.current
    if not wanted:
        raise ConfigurationError(f"{merged.described}: there is no current-context")
    context = _found(merged, "contexts", wanted)
    cluster = context.text("cluster")
    if not cluster:
        raise context.error("the context names no cluster")
    user = context.text("user")
    return Context(
        _found(merged, "clusters", cluster),
        _found(merged, "users", user) if user else None,
        context.text("namespace"),
    )


def read_file(path: Path, error: Any) -> bytes:
    """Return the content of the file at `path`; `error` makes an error from a text."""
    try:
        return path.read_bytes()
    except OSError as problem:
        raise error(f"{path}: {problem.strerror}") from problem


@dataclass
class _Merged:
    """The merged content of all files."""

    files: list[Path] = field(default_factory=list)
    current: str = ""
    entries: dict[str, dict[str, Entry]] = field(
        default_factory=lambda: {kind: {} for kind in _KINDS}
    )

    @property
    def described(self) -> str:
        return f"kubeconfig {os.pathsep.join(map(str, self.files))}"


def _merged(path: Path | None) -> _Merged:
    if path is not None:
        paths: Sequence[Path] = [path]
    else:
        given = os.environ.get("KUBECONFIG", "")
        listed = [Path(each).expanduser() for each in given.split(os.pathsep) if each]
        paths = [each for each in listed or [_default_path()] if each.exists()]
        if not paths:
            looked = os.pathsep.join(map(str, listed or [_default_path()]))
            raise ConfigurationError(
                f"there is no kubeconfig at {looked}; name one by --kubeconfig or $KUBECONFIG"
            )
    merged = _Merged()
    for each in paths:
        _merge(merged, each)
    return merged


def _default_path() -> Path:
    return Path("~/.kube/config").expanduser()


def _merge(merged: _Merged, path: Path) -> None:
    document = _document(path)
    merged.files.append(path)
    merged.current = merged.current or str(document.get("current-context") or "")
    for kind, key in _KINDS.items():
        items = document.get(kind) or []
        if not isinstance(items, list):
            raise ConfigurationError(f"kubeconfig {path}: {kind} is not a list")
        for item in items:
            value = item.get(key) if isinstance(item, Mapping) else None
            if not isinstance(value, Mapping | None) or not isinstance(item, Mapping):
                raise ConfigurationError(f"kubeconfig {path}: an entry of {kind} is not a mapping")
            name = str(item.get("name") or "")
            merged.entries[kind].setdefault(name, Entry(f"{key} {name}", value or {}, path))


def _document(path: Path) -> Mapping[str, Any]:
    """Return the content of one file; an empty file is an empty mapping."""
    import yaml  # pods have no kubeconfig, and reservation pods must start fast

    raw = read_file(path, lambda problem: ConfigurationError(f"kubeconfig {problem}"))
    try:
        document = yaml.safe_load(raw)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        text = " ".join(str(error).split())
        raise ConfigurationError(f"kubeconfig {path}: not YAML: {text}") from error
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise ConfigurationError(f"kubeconfig {path}: a mapping with clusters is expected")
    return document


def _found(merged: _Merged, kind: str, name: str) -> Entry:
    """Return the entry `name` of `kind`.

    Raises:
        ConfigurationError: there is none; the message lists the existing names.
    """
    entries = merged.entries[kind]
    if name not in entries:
        known = f"; there are {', '.join(sorted(entries))}" if entries else ""
        raise ConfigurationError(
            f"{merged.described}: there is no {_KINDS[kind]} called {name}{known}"
        )
    return entries[name]
