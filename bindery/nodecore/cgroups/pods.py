"""The pod container manager: the cgroup of each pod."""

from collections.abc import Callable

from bindery.nodecore.cgroups import names
from bindery.nodecore.cgroups.manager import CgroupManager
from bindery.nodecore.cgroups.names import CgroupName
from bindery.nodecore.cgroups.values import CgroupValues
from bindery.nodecore.pods import Pod, QosClass

Describe = Callable[[Pod], tuple[CgroupName, CgroupValues]]
"""Returns the cgroup of a pod, and its values."""


class PodCgroups:
    """The cgroups of pods below those of the QoS classes."""

    def __init__(
        self, cgroups: CgroupManager, classes: dict[QosClass, CgroupName], describe: Describe
    ) -> None:
        self._cgroups = cgroups
        self._classes = classes
        self._describe = describe

    def exists(self, pod: Pod) -> bool:
        """Return whether the pod's cgroup is there."""
        return self._cgroups.exists(self._describe(pod)[0])

    def ensure_exists(self, pod: Pod) -> None:
        """Create the pod's cgroup if it is not there; raises CgroupError if that fails."""
        cgroup, content = self._describe(pod)
        if not self._cgroups.exists(cgroup):
            self._cgroups.create(cgroup, content)

    def name(self, pod: Pod) -> tuple[CgroupName, str]:
        """Return the pod's cgroup, and its path as the driver has it."""
        cgroup = self._describe(pod)[0]
        return cgroup, self._cgroups.name(cgroup)

    def destroy(self, cgroup: CgroupName) -> None:
        """Kill the processes of a cgroup and remove it; raises CgroupError if some are left."""
        self._cgroups.destroy(cgroup)

    def reduce_cpu_limits(self, cgroup: CgroupName) -> None:
        """Give a pod's cgroup the least CPU shares; raises CgroupError if it is not there."""
        self._cgroups.reduce_cpu_limits(cgroup)

    def memory_usage(self, pod: Pod) -> int:
        """Return how many bytes the pod uses."""
        return self._cgroups.memory_usage(self._describe(pod)[0])

    def config(self, pod: Pod, resource: str) -> CgroupValues:
        """Return the "cpu" or "memory" values of the pod's cgroup; raises CgroupError."""
        return self._cgroups.config(self._describe(pod)[0], resource)

    def set_config(self, pod: Pod, content: CgroupValues) -> None:
        """Set values of the pod's cgroup; raises CgroupError if it is not there."""
        self._cgroups.update(self._describe(pod)[0], content)

    def pods(self) -> dict[str, CgroupName]:
        """Return the cgroups of pods that are there, by pod UID."""
        found = {}
        for parent in self._classes.values():
            for cgroup in self._cgroups.children(parent):
                uid = names.pod_uid(cgroup)
                if uid is not None:
                    found[uid] = cgroup
        return found

    def pod_uid(self, path: str) -> str | None:
        """Return the UID of the pod whose cgroup has this path, None if it is no pod's."""
        cgroup = self._cgroups.cgroup_name(path)
        is_child = any(len(cgroup) == len(parent) + 1 for parent in self._classes.values())
        return names.pod_uid(cgroup) if is_child else None


class NoPodCgroups:
    """Stands in where pods have no cgroups of their own: all are in one."""

    def __init__(self, root: CgroupName) -> None:
        self._root = root

    def exists(self, pod: Pod) -> bool:  # noqa: ARG002
        """Return true: the common cgroup is there."""
        return True

    def ensure_exists(self, pod: Pod) -> None:
        """Do nothing."""

    def name(self, pod: Pod) -> tuple[CgroupName, str]:  # noqa: ARG002
        """Return the common cgroup; it has no path of its own."""
        return self._root, ""

    def destroy(self, cgroup: CgroupName) -> None:
        """Do nothing."""

    def reduce_cpu_limits(self, cgroup: CgroupName) -> None:
        """Do nothing."""

    def pods(self) -> dict[str, CgroupName]:
        """Return no pods."""
        return {}

    def pod_uid(self, path: str) -> str | None:  # noqa: ARG002
        """Return None: no cgroup is a pod's."""
        return None


PodContainerManager = PodCgroups | NoPodCgroups
"""Makes and removes the cgroups of pods."""
