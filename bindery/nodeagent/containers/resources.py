"""Asks the node's kubelet decisions which pods run, and on which CPUs and memory."""

from bindery.nodeagent.candidates import core_pod
from bindery.nodeagent.containers.podspec import RunPod
from bindery.nodeagent.kubelet import HollowKubelet
from bindery.nodeagent.kubelets import Kubelets
from bindery.nodeagent.shapes import HollowNode
from bindery.nodecore.admission.result import Admission
from bindery.nodecore.lifecycle import CpusetConfig
from bindery.nodecore.pods import Container, Pod


class NodeResources:
    """The resources of one node; call `open` before the first pod is admitted."""

    def __init__(self, node: HollowNode, kubelets: Kubelets) -> None:
        self.node, self._kubelets = node, kubelets

    def open(self, pods: list[RunPod]) -> None:
        """Admit the pods that are on the node when the agent starts, running ones first."""
        self._kubelets.open(self.node, pods)

    @property
    def is_open(self) -> bool:
        """Whether pods can be admitted."""
        return self._kubelets.kubelet(self.node.name) is not None

    def admit(self, pod: RunPod) -> Admission:
        """Return whether `pod` may run; the first answer for a pod is final."""
        return self._kubelets.admit(self.node, pod)

    def stopped(self) -> list[str]:
        """Return the UIDs of pods to stop in favour of critical pods, since the last call."""
        return self._kubelets.stopped(self.node)

    def release(self, uid: str) -> None:
        """Release what the ended pod `uid` holds."""
        self._kubelets.release(self.node.name, uid)

    def cpuset(self, pod: RunPod, name: str) -> tuple[CpusetConfig, bool]:
        """Return the CPUs and NUMA nodes of a container, and whether the CPUs are its own."""
        manager = self.kubelet.manager
        core, container = _found(pod, name)
        is_own = manager.container_has_exclusive_cpus(core, container)
        return manager.lifecycle.pre_create(core, container), is_own

    @property
    def kubelet(self) -> HollowKubelet:
        """The decisions of the node; `open` has been called."""
        found = self._kubelets.kubelet(self.node.name)
        assert found is not None
        return found


def _found(pod: RunPod, name: str) -> tuple[Pod, Container]:
    core = core_pod(pod)
    return core, next(one for one in core.all_containers if one.name == name)
