"""What the node must have before pods can run: mounted controllers and kernel settings."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from bindery.nodecore.errors import ConfigurationError

NEEDED_V1: Final = frozenset({"cpu", "cpuacct", "cpuset", "memory"})
QUOTA_FILES: Final = ("cpu.cfs_period_us", "cpu.cfs_quota_us")

TUNABLES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "vm.overcommit_memory": 1,
        "vm.panic_on_oom": 0,
        "kernel.panic": 10,
        "kernel.panic_on_oops": 1,
        "kernel.keys.root_maxkeys": 1_000_000,
        "kernel.keys.root_maxbytes": 25_000_000,
    }
)
"""Kernel setting -> the value that it must have."""


@dataclass(frozen=True)
class Mount:
    """A mount point with its file system; with cgroup v1, controllers are among its options."""

    path: str
    kind: str
    options: Sequence[str] = ()


@dataclass(frozen=True)
class Subsystems:
    """The mounted controllers.

    Attributes:
        mount_points: controller -> where it is mounted.
        is_unified: whether this is cgroup v2, which mounts all controllers in one place.
    """

    mount_points: Mapping[str, str] = field(default_factory=dict)
    is_unified: bool = False


@dataclass(frozen=True)
class Status:
    """The first thing that the node lacks without being unable to run pods; empty for none."""

    soft_requirements: str = ""


def subsystems(mounts: Iterable[Mount], *, is_unified: bool) -> Subsystems:
    """Return where controllers are mounted; for cgroup v2 that is one place."""
    found: dict[str, str] = {}
    for mount in mounts:
        if is_unified and mount.kind == "cgroup2":
            found.setdefault("", mount.path)
        elif not is_unified and mount.kind == "cgroup":
            for option in mount.options:
                found.setdefault(option, mount.path)
    return Subsystems(found, is_unified)


def check_requirements(found: Subsystems, has_file: Callable[[str], bool]) -> Status:
    """Check that all needed controllers are mounted; return what else is missing.

    Raises:
        ConfigurationError: a controller is not mounted.
    """
    if found.is_unified:
        return Status()
    missing = sorted(NEEDED_V1 - found.mount_points.keys())
    if missing:
        raise ConfigurationError(
            "system validation failed - Following Cgroup subsystem not mounted: "
            f"[{' '.join(missing)}]"
        )
    where = found.mount_points["cpu"]
    has_quota = all(has_file(f"{where}/{file}") for file in QUOTA_FILES)
    return Status("" if has_quota else "CPU hardcapping unsupported")


def tunables_to_write(
    read: Callable[[str], int], *, protect_defaults: bool = False
) -> dict[str, int]:
    """Return the kernel settings to change.

    `protect_defaults`: whether other values are an error instead.

    Raises:
        ConfigurationError: a setting has another value and must not be changed.
    """
    actual = {name: read(name) for name in TUNABLES}
    wrong = {name: value for name, value in TUNABLES.items() if actual[name] != value}
    if protect_defaults and wrong:
        raise ConfigurationError(
            "; ".join(
                f"invalid kernel flag: {name}, expected value: {value}, actual value: "
                f"{actual[name]}"
                for name, value in wrong.items()
            )
        )
    return wrong
