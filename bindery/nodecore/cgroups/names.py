"""Names of cgroups, for both drivers."""

from typing import Final, NewType

from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.pods import Pod, QosClass

CgroupName = NewType("CgroupName", tuple[str, ...])
"""The parts of a name, without the root: ("kubepods", "burstable", "pod1")."""

ROOT: Final = CgroupName(())
SYSTEMD: Final = "systemd"
CGROUPFS: Final = "cgroupfs"
KUBEPODS: Final = "kubepods"
POD_PREFIX: Final = "pod"
SLICE: Final = ".slice"


class CgroupNameError(NodeCoreError, ValueError):
    """A part of a cgroup's name has a character that it must not have."""


def child(base: CgroupName, *parts: str) -> CgroupName:
    """Return the name of a cgroup below `base`.

    Raises:
        CgroupNameError: a part has a slash or an underscore, which the drivers need.
    """
    for part in parts:
        if "/" in part or "_" in part:
            raise CgroupNameError(f'invalid character in component ["{part}"] of CgroupName')
    return CgroupName((*base, *parts))


def to_cgroupfs(name: CgroupName) -> str:
    """Return the path of the cgroup below the mount point."""
    return "/" + "/".join(part for part in name if part)


def from_cgroupfs(path: str) -> CgroupName:
    """Return the name of which `path` is the path."""
    inner = path.removeprefix("/")
    return CgroupName(tuple(inner.split("/")) if inner else ())


def to_systemd(name: CgroupName) -> str:
    """Return the path of the slice: every slice is below the one that its name extends.

    Raises:
        CgroupNameError: a part is empty.
    """
    if not name or name == ("",):
        return "/"
    parts = [part.replace("-", "_") for part in name]
    return expand_slice("-".join(parts) + SLICE)


def expand_slice(unit: str) -> str:
    """Return the path of a slice: "a-b.slice" is "/a.slice/a-b.slice".

    Raises:
        CgroupNameError: the unit is no slice, or has an empty part.
    """
    if not unit.endswith(SLICE) or len(unit) <= len(SLICE) or "/" in unit:
        raise CgroupNameError(f"invalid slice name: {unit}")
    inner = unit.removesuffix(SLICE)
    if inner == "-":
        return "/"
    path, prefix = "", ""
    for part in inner.split("-"):
        if not part:
            raise CgroupNameError(f"invalid slice name: {unit}")
        path += f"/{prefix}{part}{SLICE}"
        prefix += f"{part}-"
    return path


def from_systemd(path: str) -> CgroupName:
    """Return the name of which `path` is the slice."""
    unit = path.rpartition("/")[2].removesuffix(SLICE)
    return CgroupName(tuple(part.replace("_", "-") for part in unit.split("-")))


def to_driver(name: CgroupName, driver: str) -> str:
    """Return the path of the cgroup as the driver "systemd" or "cgroupfs" has it."""
    return to_systemd(name) if driver == SYSTEMD else to_cgroupfs(name)


def node_allocatable_root(root: str, driver: str, *, per_qos: bool = True) -> str:
    """Return the path of the cgroup that all pods are in."""
    base = from_cgroupfs(root)
    return to_driver(child(base, KUBEPODS) if per_qos else base, driver)


def of_qos(root: CgroupName, qos: QosClass) -> CgroupName:
    """Return the cgroup of a QoS class below `root`; Guaranteed pods are in `root` itself."""
    return root if qos == QosClass.GUARANTEED else child(root, qos.lower())


def of_pod(root: CgroupName, pod: Pod) -> CgroupName:
    """Return the cgroup of a pod below `root`."""
    return child(of_qos(root, pod.qos), f"{POD_PREFIX}{pod.uid}")


def pod_uid(name: CgroupName) -> str | None:
    """Return the UID of the pod that the cgroup belongs to, None if it is no pod's.

    A name with the word "pod" twice is no pod's, as in the kubelet.
    """
    before, *after = name[-1].split(POD_PREFIX) if name else ("",)
    return after[0] if before == "" and len(after) == 1 and after[0] else None
