"""Creates and restores the kubelets of all hollow nodes of an agent, and asks them for decisions.

Used by `pods` and by `agent`, which does not register a node if its kubelet does not start.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from bindery.api.states import ENDED_POD_PHASES
from bindery.kube.objects.watched import Node
from bindery.nodeagent import held as records
from bindery.nodeagent import metrics
from bindery.nodeagent.candidates import allocatable_of, candidate_of, in_order_of_restoration
from bindery.nodeagent.held import Held
from bindery.nodeagent.kubelet import HollowKubelet, Stores, in_memory
from bindery.nodeagent.pod_objects import AgentPod
from bindery.nodeagent.shapes import ManagedNode
from bindery.nodecore.admission.result import Admission
from bindery.nodecore.checkpoints.store import CheckpointManager, DirectoryStore
from bindery.nodecore.errors import NodeCoreError, StateError

DEVICE_DIRECTORY: Final = "device-plugins"
"""Directory of the device manager's checkpoint, below the kubelet's directory."""
NOT_STARTED: Final = "Failed to start ContainerManager"


class Kubelets:
    """A kubelet for each node.

    `changed` is called with a node when its pods or their resources have changed, `complain` with a
    node and a sentence about lost records. `checkpoints`: a directory with one directory for each
    node; None keeps them in memory.
    """

    def __init__(
        self,
        *,
        node_object: Callable[[ManagedNode], Node],
        changed: Callable[[ManagedNode], None],
        complain: Callable[[ManagedNode, str], None],
        clock: Callable[[], float],
        checkpoints: Path | None,
    ) -> None:
        self._node_object, self._changed, self._complain = node_object, changed, complain
        self._clock, self._checkpoints = clock, checkpoints
        self._kubelets: dict[str, HollowKubelet] = {}
        self._nodes: dict[str, ManagedNode] = {}  # nodes with restored pods

    def prepare(self, node: ManagedNode) -> str | None:
        """Start the kubelet of `node` from its checkpoint files, if the agent keeps checkpoint
        files.

        Returns the reason in the kubelet's words if the kubelet does not start, else None.
        """
        if self._checkpoints is None or node.name in self._kubelets:
            return None
        try:
            kubelet = self._new(node, _stores(self._checkpoints / node.name))
            lost = kubelet.start((), {})
        except (NodeCoreError, OSError) as error:
            return f"{NOT_STARTED}: {error}"
        if lost is not None:
            self._complain(node, lost)
        self._kubelets[node.name] = kubelet
        return None

    def open(self, node: ManagedNode, pods: Iterable[AgentPod]) -> None:
        """Admit the existing pods of `node`; a second call does nothing.

        Running pods come first, then pods with recorded resources, then the others by age.
        """
        if node.name in self._nodes:
            return
        present = [pod for pod in pods if pod.status.phase not in ENDED_POD_PHASES]
        kubelet = self._kubelets.get(node.name) or self._restored(node, present)
        self._kubelets[node.name] = kubelet
        self._nodes[node.name] = node
        running, others = in_order_of_restoration(present, kubelet.is_recorded)
        for pod in running:
            self._decide(kubelet, node, pod)
        # Pods with interrupted admission lose their old resources: they may get others now.
        kubelet.ready()
        for pod in others:
            self._decide(kubelet, node, pod)
        self._changed(node)

    def admit(self, node: ManagedNode, pod: AgentPod) -> Admission:
        """Return whether `pod` may run on `node`; the first answer for a pod is final."""
        kubelet = self._kubelets[node.name]
        known = kubelet.answer(pod.metadata.uid)
        if known is not None:
            return known
        answer = self._decide(kubelet, node, pod)
        self._changed(node)
        return answer

    def release(self, name: str, uid: str) -> None:
        """Release the resources of the pod `uid` on the node `name`, ended or deleted."""
        node, kubelet = self._nodes.get(name), self.kubelet(name)
        if node is None or kubelet is None:
            return
        try:
            was_known = kubelet.release(uid)
        except OSError as error:
            # The next release or admission on the node writes the checkpoint.
            self._complain(node, f"a checkpoint cannot be written: {error}")
            was_known = True
        if was_known:
            self._changed(node)

    def stopped(self, node: ManagedNode) -> list[str]:
        """Return the UIDs of pods stopped in favour of critical pods since the last call."""
        return self._kubelets[node.name].stopped()

    def held(self, node: ManagedNode, uid: str) -> str | None:
        """Return the record of the resources that the pod `uid` holds; None if it holds none."""
        kubelet = self._kubelets[node.name]
        held = kubelet.held(uid) if node.machine.is_reported else {}
        return records.encode(held) if held else None

    def new_record(self, node: ManagedNode, pod: AgentPod) -> str | None:
        """Return a new record for a running pod; None if the current record is right.

        The record is wrong after a restart from records that could not be used.
        """
        if (
            not node.machine.is_reported
            or self._kubelets[node.name].answer(pod.metadata.uid) is None
        ):
            return None
        held = self._kubelets[node.name].held(pod.metadata.uid)
        text = pod.metadata.annotations.get(records.ANNOTATION)
        try:
            written = records.decode(text) if text is not None else {}
        except StateError:
            return records.encode(held)
        return None if held == written else records.encode(held)

    def kubelet(self, node: str) -> HollowKubelet | None:
        """Return the kubelet of `node` after its pods have been restored."""
        return self._kubelets.get(node) if node in self._nodes else None

    def _decide(self, kubelet: HollowKubelet, node: ManagedNode, pod: AgentPod) -> Admission:
        seen = self._node_object(node)
        answer = kubelet.admit(candidate_of(pod, seen), allocatable_of(node, seen))
        if not answer.admit:
            metrics.REFUSALS.labels(answer.reason).inc()
        return answer

    def _restored(self, node: ManagedNode, pods: Iterable[AgentPod]) -> HollowKubelet:
        """Return a kubelet without checkpoint files, restored from the records of its pods."""
        try:
            kubelet = self._new(node, in_memory())
            kubelet.start((), _held(pods) if node.machine.is_reported else {})
        except NodeCoreError as error:
            # The kubelet's message advises to drain the node and delete the file; a hollow node has
            # no file.
            self._complain(node, f"{error}; its pods are admitted again as if they were new")
            kubelet = self._new(node, in_memory())
            kubelet.start((), {})
        return kubelet

    def _new(self, node: ManagedNode, stores: Stores) -> HollowKubelet:
        return HollowKubelet(node.name, node.machine, stores, self._clock)


def _stores(directory: Path) -> Stores:
    return Stores(
        CheckpointManager(DirectoryStore(directory)),
        CheckpointManager(DirectoryStore(directory / DEVICE_DIRECTORY)),
        outlive=True,
    )


def _held(pods: Iterable[AgentPod]) -> dict[str, Held]:
    texts = ((pod.metadata.uid, pod.metadata.annotations.get(records.ANNOTATION)) for pod in pods)
    return {uid: records.decode(text) for uid, text in texts if text is not None}
