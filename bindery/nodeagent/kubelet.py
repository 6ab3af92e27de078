"""Decides as the kubelet of one hollow node: which pods run, and which resources their containers
hold.

Called by `kubelets`. It runs the whole admission chain of `nodecore`; the clock and the checkpoint
stores are passed in. Nothing runs between two calls, so an idle node costs no time.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bindery.nodeagent import held as records
from bindery.nodeagent.admission import PodAdmission, container_id
from bindery.nodeagent.hardware import MachineSettings, NoPods
from bindery.nodeagent.held import Held
from bindery.nodecore.admission.facts import Candidate
from bindery.nodecore.admission.result import Admission, refused
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.container_manager import ContainerManager
from bindery.nodecore.errors import AllocationError
from bindery.nodecore.pods import Pod


@dataclass(frozen=True)
class Stores:
    """The checkpoint stores of a kubelet; `outlive`: whether they survive the agent."""

    managers: CheckpointManager
    devices: CheckpointManager
    outlive: bool


def in_memory() -> Stores:
    """Return stores that are lost when the agent stops."""
    return Stores(CheckpointManager(MemoryStore()), CheckpointManager(MemoryStore()), outlive=False)


class HollowKubelet:
    """The kubelet of the node called `name`. Decisions about pods are kept until `release`."""

    def __init__(
        self,
        name: str,
        machine: MachineSettings,
        stores: Stores,
        clock: Callable[[], float],
    ) -> None:
        self.name, self.machine = name, machine
        self._stores, self._clock = stores, clock
        self._pods = PodAdmission(name, machine.declared_features)
        self.manager = ContainerManager(
            machine.config, self._pods, stores.managers, stores.devices, clock
        )
        self._pods.use(self.manager)

    def start(self, running: Iterable[Pod], held: Mapping[str, Held]) -> str | None:
        """Restore the resources of containers. Return a description of records that were lost, or
        None.

        `held`: pod UID -> record; used if the stores do not survive the agent.

        Raises:
            NodeCoreError: a checkpoint cannot be used; a kubelet would not start.
        """
        if held and not self._stores.outlive:
            fresh = ContainerManager(
                self.machine.config,
                NoPods(),
                CheckpointManager(MemoryStore()),
                CheckpointManager(MemoryStore()),
                self._clock,
            )
            fresh.start()
            records.restore(fresh, held, self._stores.managers, self._stores.devices)
        containers = {
            container_id(pod.uid, one.name): (pod.uid, one.name)
            for pod in running
            for one in pod.all_containers
        }
        lost = self.manager.start(containers)
        for resource, devices in self.machine.devices.items():
            self.manager.devices.register(resource)
            self.manager.devices.update(resource, devices)
        return None if lost is None else f"the state of devices is lost: {lost}"

    def ready(self) -> None:
        """Release the resources of pods that have not been admitted since the start."""
        self._pods.ready()

    def is_recorded(self, uid: str) -> bool:
        """Return whether containers of the pod `uid` already hold resources."""
        return self._pods.is_recorded(uid)

    def admit(
        self, candidate: Candidate, allocatable: Mapping[str, int], *, starts: bool = True
    ) -> Admission:
        """Return whether a pod may run; the first answer for a pod is final.

        `starts`: whether the containers start immediately; otherwise call `start_containers` later.
        """
        uid = candidate.pod.uid
        known = self._pods.answer(uid)
        if known is not None:
            return known
        answer = self._pods.plan(candidate, allocatable)
        if not answer.admit:
            return answer
        devices = self.manager.devices
        try:
            # No devices are behind hollow plugins: their answers are empty.
            devices.record(dict.fromkeys(devices.calls(uid), b""))
            if starts:
                self.start_containers(uid)
        except OSError as error:  # a checkpoint cannot be written
            answer = refused(AllocationError(str(error)))
            self._pods.refuse(uid, answer)
        self._pods.confirm(uid)
        return answer

    def start_containers(self, uid: str) -> None:
        """Record that the containers of an admitted pod run and its init containers have ended.

        Until then, the init containers hold resources that the other containers do not reuse.

        Raises:
            OSError: a checkpoint cannot be written.
        """
        candidate = self._pods.candidate(uid)
        if candidate is None:
            return
        pod = candidate.pod
        for one in pod.all_containers:
            self.manager.lifecycle.pre_start(pod, one, container_id(uid, one.name))

    def answer(self, uid: str) -> Admission | None:
        """Return the decision about the pod `uid`, or None."""
        return self._pods.answer(uid)

    def admitted(self) -> Iterable[Pod]:
        """Return the pods that run, in the order of their admission."""
        return self._pods.admitted()

    def release(self, uid: str) -> bool:
        """Release the resources of the ended pod `uid`; return whether the pod was known."""
        return self._pods.release(uid)

    def stopped(self) -> list[str]:
        """Return the pods stopped in favour of critical pods since the last call."""
        return self._pods.stopped()

    def held(self, uid: str) -> Held:
        """Return the resources that the containers of the pod `uid` hold exclusively."""
        candidate = self._pods.candidate(uid)
        if candidate is None:
            return {}
        names = [one.name for one in candidate.pod.all_containers]
        return records.of_pod(self.manager, uid, names)
