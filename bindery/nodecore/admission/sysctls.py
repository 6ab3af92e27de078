"""The sysctls that a pod may set: each must belong to a namespace and be allowed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bindery.nodecore.errors import ConfigurationError

IPC: Final = "IPC"
NET: Final = "Net"

SAFE: Final = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
)
"""The sysctls that are allowed on every kernel."""

_NAMES: Final = {
    *("kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced"),
    *("kernel.shm", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.msg"),
}
_PREFIXES: Final = {"net.": NET, "fs.mqueue.": IPC}

_LONGEST: Final = 253
_SYNTAX: Final = re.compile(
    r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]", re.ASCII
)
"""Parts with dots or slashes between them; only the last one may end with a star."""


@dataclass(frozen=True)
class _Pattern:
    """A name, or the beginning of names."""

    text: str
    is_prefix: bool
    namespace: str

    def matches(self, name: str) -> bool:
        return name.startswith(self.text) if self.is_prefix else name == self.text


def check_allowlist(patterns: Sequence[str]) -> None:
    """Raise ConfigurationError if one of `patterns` names no sysctl of a namespace."""
    for pattern in patterns:
        _parsed(pattern)


def refusal(
    name: str, patterns: Sequence[str], *, host_network: bool, host_ipc: bool
) -> str | None:
    """Return why a pod may not set the sysctl `name`, None if it may."""
    name = _normal(name)
    allowed = [_parsed(pattern) for pattern in patterns]
    # An exact name counts before a prefix, as in the kubelet.
    for pattern in sorted(allowed, key=lambda one: one.is_prefix):
        if pattern.matches(name):
            shared = host_ipc if pattern.namespace == IPC else host_network
            if shared:
                return f'"{name}" not allowed with host {pattern.namespace} enabled'
            return None
    return f'"{name}" not allowlisted'


def _parsed(pattern: str) -> _Pattern:
    if len(pattern) > _LONGEST or not _SYNTAX.fullmatch(pattern):
        raise ConfigurationError(
            f'sysctl "{pattern}" must have at most {_LONGEST} characters and match regex '
            f"{_SYNTAX.pattern}"
        )
    text, star, _ = _normal(pattern).partition("*")
    namespace = IPC if text in _NAMES else None
    for prefix, found in _PREFIXES.items():
        if text.startswith(prefix):
            namespace = found
    if namespace is None:
        raise ConfigurationError(f'the sysctls "{text}" are not known to be namespaced')
    return _Pattern(text, bool(star), namespace)


def _normal(name: str) -> str:
    """Return the name with dots between its parts; the first separator decides about its form."""
    first = min((name.find(sign) for sign in "./" if sign in name), default=-1)
    if first < 0 or name[first] == ".":
        return name
    return name.translate(str.maketrans("./", "/."))
