"""Decides as the kubelet of one hollow node: which pods run, and which resources their containers
hold.

Called by `kubelets`. It runs the whole admission chain of `nodecore`; the clock and the checkpoint
stores are passed in. Nothing runs between two calls, so an idle node costs no time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from bindery.nodeagent import held as records
from bindery.nodeagent.hardware import HollowMachine, NoPods
from bindery.nodeagent.held import Held
from bindery.nodecore.admission import chain, sysctls
from bindery.nodecore.admission.facts import Candidate, NodeFacts
from bindery.nodecore.admission.result import ADMITTED, Admission, refused
from bindery.nodecore.checkpoints.store import CheckpointManager, MemoryStore
from bindery.nodecore.container_manager import ContainerManager
from bindery.nodecore.devices.state import Ids
from bindery.nodecore.errors import AllocationError
from bindery.nodecore.pods import Pod

PREEMPTING: Final = "Preempting"
PREEMPTED: Final = Admission(
    admit=False, reason=PREEMPTING, message="Preempted in order to admit critical pod"
)


@dataclass(frozen=True)
class Stores:
    """The checkpoint stores of a kubelet; `outlive`: whether they survive the agent."""

    managers: CheckpointManager
    devices: CheckpointManager
    outlive: bool


def in_memory() -> Stores:
    """Return stores that are lost when the agent stops."""
    return Stores(CheckpointManager(MemoryStore()), CheckpointManager(MemoryStore()), outlive=False)


class HollowPlugin:
    """A device plugin without devices behind it; its answers are empty."""

    prefers = False

    def preferred(self, available: Ids, included: Ids, size: int) -> Iterable[str]:
        """Return no preference."""
        del available, included, size
        return ()

    def allocate(self, ids: Ids) -> bytes:
        """Return an empty `ContainerAllocateResponse`."""
        del ids
        return b""


_PLUGIN: Final = HollowPlugin()


class HollowKubelet:
    """The kubelet of the node called `name`. Decisions about pods are kept until `release`."""

    def __init__(
        self,
        name: str,
        machine: HollowMachine,
        stores: Stores,
        clock: Callable[[], float],
    ) -> None:
        self.name, self.machine = name, machine
        self._stores, self._clock = stores, clock
        self._admitted: dict[str, Candidate] = {}
        self._refused: dict[str, Admission] = {}
        self._is_ready = False
        self._stopped: list[str] = []
        self.manager = self._new_manager()
        self._checks = chain.checks(
            chain.Managers(self.manager.admit, self.manager.devices.sanitized, self._stop)
        )

    def active_pods(self) -> Sequence[Pod]:
        """Return the pods that are admitted and not terminated."""
        return [one.pod for one in self._admitted.values()]

    def sources_ready(self) -> bool:
        """Return whether the pods of an earlier run have been admitted again."""
        return self._is_ready

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
            self.manager.devices.register(resource, _PLUGIN)
            self.manager.devices.update(resource, devices)
        return None if lost is None else f"the state of devices is lost: {lost}"

    def ready(self) -> None:
        """Release the resources of pods that have not been admitted since the start."""
        self._is_ready = True
        self._remove_stale_state()

    def is_recorded(self, uid: str) -> bool:
        """Return whether containers of the pod `uid` already hold resources."""
        manager = self.manager
        recorded = (
            manager.cpu.state.containers,
            manager.memory.state.containers,
            manager.devices.state.held,
        )
        return any(uid in one for one in recorded)

    def admit(
        self, candidate: Candidate, allocatable: Mapping[str, int], *, starts: bool = True
    ) -> Admission:
        """Return whether a pod may run; the first answer for a pod is final.

        `starts`: whether the containers start immediately; otherwise call `start_containers` later.
        """
        uid = candidate.pod.uid
        known = self.answer(uid)
        if known is not None:
            return known
        facts = NodeFacts(
            self.name,
            allocatable,
            pods=tuple(self._admitted.values()),
            allowed_sysctls=sysctls.SAFE,
            declared_features=self.machine.declared_features,
        )
        # Keep the managers from treating resources that an earlier run gave to this pod as stale.
        self._admitted[uid] = candidate
        try:
            answer = chain.admit(_without_ended(candidate), facts, self._checks)
            if answer.admit and starts:
                self.start_containers(uid)
        except OSError as error:  # a checkpoint cannot be written
            answer = refused(AllocationError(str(error)))
        if not answer.admit:
            self._refused[uid] = answer
            with suppress(OSError):  # the next release or admission tries again
                self._forget(uid)
        return answer

    def start_containers(self, uid: str) -> None:
        """Record that the containers of an admitted pod run and its init containers have ended.

        Until then, the init containers hold resources that the other containers do not reuse.

        Raises:
            OSError: a checkpoint cannot be written.
        """
        pod = self._admitted[uid].pod
        for one in pod.all_containers:
            self.manager.lifecycle.pre_start(pod, one, container_id(uid, one.name))

    def answer(self, uid: str) -> Admission | None:
        """Return the decision about the pod `uid`, or None."""
        return ADMITTED if uid in self._admitted else self._refused.get(uid)

    def admitted(self) -> Iterable[Pod]:
        """Return the pods that run, in the order of their admission."""
        return (one.pod for one in self._admitted.values())

    def release(self, uid: str) -> bool:
        """Release the resources of the ended pod `uid`; return whether the pod was known."""
        was_refused = self._refused.pop(uid, None) is not None
        if uid not in self._admitted:
            return was_refused
        self._forget(uid)
        return True

    def stopped(self) -> list[str]:
        """Return the pods stopped in favour of critical pods since the last call."""
        stopped, self._stopped = self._stopped, []
        return stopped

    def held(self, uid: str) -> Held:
        """Return the resources that the containers of the pod `uid` hold exclusively."""
        candidate = self._admitted.get(uid)
        if candidate is None:
            return {}
        names = [one.name for one in candidate.pod.all_containers]
        return records.of_pod(self.manager, uid, names)

    def _new_manager(self) -> ContainerManager:
        stores = self._stores
        return ContainerManager(
            self.machine.config, self, stores.managers, stores.devices, self._clock
        )

    def _stop(self, victim: Candidate) -> None:
        """Stop a pod in favour of a critical one."""
        uid = victim.pod.uid
        self._refused[uid] = PREEMPTED
        self._stopped.append(uid)
        self._forget(uid)

    def _forget(self, uid: str) -> None:
        pod = self._admitted.pop(uid).pod
        topology = self.manager.topology
        for one in pod.all_containers:
            # Also for a refused pod, which never had containers.
            topology.add_container(pod, one, container_id(uid, one.name))
            topology.remove_container(container_id(uid, one.name))
        self._remove_stale_state()

    def _remove_stale_state(self) -> None:
        for manager in (self.manager.devices, self.manager.cpu, self.manager.memory):
            manager.remove_stale_state()


def _without_ended(candidate: Candidate) -> Candidate:
    """Return a pod that already ran before a restart, without its init containers that have ended.

    The memory of these init containers was released when they ended; the kubelet would request it
    again.
    """
    if candidate.is_pending:
        return candidate
    sidecars = [one for one in candidate.pod.init_containers if one.is_sidecar]
    return replace(candidate, pod=replace(candidate.pod, init_containers=sidecars))


def container_id(uid: str, container: str) -> str:
    """Return the ID that the container runtime would give to a container."""
    return f"hollow://{uid}/{container}"
