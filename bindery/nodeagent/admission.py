"""Admits the pods of a node: a plan, the plugins' answers, and the decision, which is final.

Used by `kubelet` for hollow nodes, whose plugins answer at once, and by `kubeletside`, which calls
plugins on their sockets. It has the whole admission chain of `nodecore` and waits for nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from bindery.nodecore.admission import chain, sysctls
from bindery.nodecore.admission.facts import Candidate, NodeFacts
from bindery.nodecore.admission.result import ADMITTED, Admission, refused
from bindery.nodecore.container_manager import ContainerManager
from bindery.nodecore.errors import AllocationError
from bindery.nodecore.pods import Pod

PREEMPTING: Final = "Preempting"
PREEMPTED: Final = Admission(
    admit=False, reason=PREEMPTING, message="Preempted in order to admit critical pod"
)


class PodAdmission:
    """The pods of the node called `name`. Decisions about pods are kept until `release`.

    A planned pod holds its resources and counts as a pod of the node; it runs after `confirm`.
    Give `use` the managers before the first pod: they ask this object for the pods of the node.
    """

    def __init__(self, name: str, declared_features: Sequence[str] | None) -> None:
        self.name = name
        self._declared_features = declared_features
        self._admitted: dict[str, Candidate] = {}
        self._planned: set[str] = set()
        self._refused: dict[str, Admission] = {}
        self._is_ready = False
        self._stopped: list[str] = []

    def use(self, manager: ContainerManager) -> None:
        """Take the managers of the node."""
        self.manager = manager
        self._checks = chain.checks(
            chain.Managers(manager.admit, manager.devices.sanitized, self._stop)
        )

    def active_pods(self) -> Sequence[Pod]:
        """Return the pods that are admitted or planned, and not terminated."""
        return [one.pod for one in self._admitted.values()]

    def sources_ready(self) -> bool:
        """Return whether the pods of an earlier run have been admitted again."""
        return self._is_ready

    def ready(self) -> None:
        """Release the resources of pods that have not been admitted since the start."""
        self._is_ready = True
        self._remove_stale_state()

    def plan(self, candidate: Candidate, allocatable: Mapping[str, int]) -> Admission:
        """Return whether a pod may run once its plugins have answered; a refusal is final.

        Pods that make room for a critical pod are stopped with the plan.
        """
        uid = candidate.pod.uid
        known = self._refused.get(uid, ADMITTED if uid in self._admitted else None)
        if known is not None:
            return known
        facts = NodeFacts(
            self.name,
            allocatable,
            pods=tuple(self._admitted.values()),
            allowed_sysctls=sysctls.SAFE,
            declared_features=self._declared_features,
        )
        # Keep the managers from treating resources that an earlier run gave to this pod as stale.
        self._admitted[uid] = candidate
        self._planned.add(uid)
        try:
            answer = chain.admit(_without_ended(candidate), facts, self._checks)
        except OSError as error:  # a checkpoint cannot be written
            answer = refused(AllocationError(str(error)))
        if not answer.admit:
            self.refuse(uid, answer)
        return answer

    def plan_again(self, uid: str) -> Admission:
        """Plan a pod with the devices that its plugins prefer; a refusal is final."""
        if uid not in self._admitted:
            return self._refused.get(uid, refused(AllocationError("the pod has ended")))
        try:
            answer = self.manager.admit_again(_without_ended(self._admitted[uid]).pod)
        except OSError as error:
            answer = refused(AllocationError(str(error)))
        if not answer.admit:
            self.refuse(uid, answer)
        return answer

    def confirm(self, uid: str) -> None:
        """Record that the plugins of a planned pod have answered: it runs."""
        self._planned.discard(uid)

    def refuse(self, uid: str, answer: Admission) -> None:
        """Refuse a planned pod and release its resources; one that is gone stays so."""
        if uid not in self._admitted:
            return
        self._refused[uid] = answer
        with suppress(OSError):  # the next release or admission tries again
            self._forget(uid)

    def answer(self, uid: str) -> Admission | None:
        """Return the decision about the pod `uid`, None without one or while it is planned."""
        if uid in self._admitted:
            return None if uid in self._planned else ADMITTED
        return self._refused.get(uid)

    def candidate(self, uid: str) -> Candidate | None:
        """Return a pod that is admitted or planned."""
        return self._admitted.get(uid)

    def is_recorded(self, uid: str) -> bool:
        """Return whether containers of the pod `uid` already hold resources."""
        manager = self.manager
        recorded = (
            manager.cpu.state.containers,
            manager.memory.state.containers,
            manager.devices.state.held,
        )
        return any(uid in one for one in recorded)

    def admitted(self) -> Iterable[Pod]:
        """Return the pods that run, in the order of their admission."""
        return (one.pod for uid, one in self._admitted.items() if uid not in self._planned)

    def release(self, uid: str) -> bool:
        """Release the resources of the ended pod `uid`; return whether the pod was known.

        Raises:
            OSError: a checkpoint cannot be written.
        """
        was_refused = self._refused.pop(uid, None) is not None
        if uid not in self._admitted:
            return was_refused
        self._forget(uid)
        return True

    def stopped(self) -> list[str]:
        """Return the pods stopped in favour of critical pods since the last call."""
        stopped, self._stopped = self._stopped, []
        return stopped

    def _stop(self, victim: Candidate) -> None:
        """Stop a pod in favour of a critical one."""
        uid = victim.pod.uid
        self._refused[uid] = PREEMPTED
        self._stopped.append(uid)
        self._forget(uid)

    def _forget(self, uid: str) -> None:
        pod = self._admitted.pop(uid).pod
        self._planned.discard(uid)
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
    """Return the ID under which the managers know a container of a pod, also its next attempts."""
    return f"{uid}/{container}"
