"""An engine over objects that were read once: the cluster as the scheduler would know it now.

Used by everything that answers questions. Who reads the objects, from an API server or from a file,
is the caller's business. What it plans can be carried out here, as binder and nodes would.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from bindery.api.bindrequest import Phase
from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.budgets import DisruptionBudget
from bindery.kube.objects import BindRequest, Condition, KubeObject, Pod
from bindery.kube.store import Change, EventType
from bindery.kube.workloads import WorkloadJob
from bindery.scheduler.commit import BindRequestDraft
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import TaskStatus, Uid
from bindery.scheduler.times import timestamp


@dataclass
class Clock:
    """The time in a world that stands still. `now`: seconds since the epoch."""

    now: float

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class World:
    """An engine, its clock, and the pods that it has been told of."""

    def __init__(
        self, objects: Iterable[KubeObject], configuration: SchedulerConfiguration, now: float
    ) -> None:
        self.clock = Clock(now)
        self.engine = Engine(configuration, self.clock)
        self.pods: dict[Uid, Pod] = {}
        self.workload_jobs: dict[str, WorkloadJob] = {}
        """UID -> Job, as far as its pods' fate is asked for."""
        self._budgets: list[DisruptionBudget] = []
        self._allowed: list[int] = []
        """By budget: how many more of its pods may go."""
        self._lives = 0
        """How many pods have come back after an eviction."""
        for item in objects:
            self.add(item)
        self._spare(self.pods)

    def add(self, item: KubeObject) -> None:
        """Let `item` come into being, or be what has become of one with its name."""
        if isinstance(item, DisruptionBudget):
            self._budgets.append(item)
            self._allowed.append(item.status.disruptions_allowed)
        if isinstance(item, WorkloadJob):
            self.workload_jobs[item.metadata.uid] = item
            return
        if isinstance(item, Pod):
            self.pods[Uid(item.metadata.uid)] = item
        self.engine.cluster.apply(Change(EventType.ADDED, item, None))

    # -- what binder and nodes do ----------------------------------------------------------------

    def bind(self, drafts: Sequence[BindRequestDraft]) -> None:
        """Let the pods of `drafts` run on the nodes that were planned."""
        for draft in drafts:
            request = msgspec.convert(draft.to_object(), BindRequest)
            self._apply(EventType.ADDED, request)
            bound = []
            for pod in request.spec.pods:
                for item in self.engine.bind_effects(self.pods[Uid(pod.pod_uid)], pod):
                    self.add(item)
                self._run(Uid(pod.pod_uid), pod.selected_node)
                bound.append(pod.pod_uid)
            status = msgspec.structs.replace(
                request.status, phase=Phase.SUCCEEDED.value, bound_pods=bound
            )
            self._apply(EventType.DELETED, msgspec.structs.replace(request, status=status))

    def refused(self, pods: Iterable[Uid]) -> tuple[Uid, str] | None:
        """Count the evictions of `pods` against their budgets; or return the first that may not go,
        and the budget that forbids it.

        Then nothing is counted.
        """
        left = list(self._allowed)
        for uid in pods:
            for index in self._covering(uid):
                if left[index] <= 0:
                    return uid, self._name(index)
                left[index] -= 1
        self._allowed = left
        return None

    def refusing_budget(self, pods: Iterable[Uid]) -> str:
        """Return the budget that does not allow all of `pods` to be evicted; empty if all do."""
        allowed = self._allowed
        refused = self.refused(pods)
        self._allowed = allowed
        return "" if refused is None else refused[1]

    def budget_against(self, uid: Uid) -> str:
        """Return the budget that allows no eviction of the pod now; empty if there is none."""
        if uid not in self.pods:
            return ""
        blocking = (i for i in self._covering(uid) if self._allowed[i] <= 0)
        return next(map(self._name, blocking), "")

    def evict(self, uid: Uid) -> None:
        """Begin to delete a pod."""
        pod = self.pods[uid]
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=timestamp(self.clock.now))
        self._put(msgspec.structs.replace(pod, metadata=meta))

    def release(self) -> bool:
        """Let the pods go that are being deleted; return whether there were any.

        One with a controller comes back and waits. One that is stuck stays.
        """
        tasks = self.engine.cluster.state.tasks
        # Pods of other pools are no tasks here.
        going = [
            uid
            for uid, pod in self.pods.items()
            if pod.metadata.deletion_timestamp is not None
            and uid in tasks
            and tasks[uid].status is TaskStatus.RELEASING
        ]
        for uid in going:
            pod = self.pods.pop(uid)
            self._apply(EventType.DELETED, pod)
            if any(owner.controller for owner in pod.metadata.owner_references):
                self.add(self._reborn(pod))
        self._spare(self.pods)
        return bool(going)

    # -- inside ----------------------------------------------------------------------------------

    def _run(self, uid: Uid, node: str) -> None:
        pod = self.pods[uid]
        at = timestamp(self.clock.now)
        bound = Condition(type="PodScheduled", status="True", last_transition_time=at)
        spec = msgspec.structs.replace(pod.spec, node_name=node)
        status = msgspec.structs.replace(pod.status, phase="Running", conditions=[bound])
        self._put(msgspec.structs.replace(pod, spec=spec, status=status))

    def _reborn(self, pod: Pod) -> Pod:
        self._lives += 1
        meta = msgspec.structs.replace(
            pod.metadata,
            uid=f"{pod.metadata.uid}-{self._lives}",
            creation_timestamp=timestamp(self.clock.now),
            deletion_timestamp=None,
        )
        spec = msgspec.structs.replace(pod.spec, node_name="")
        status = msgspec.structs.replace(pod.status, phase="Pending", conditions=None)
        return msgspec.structs.replace(pod, metadata=meta, spec=spec, status=status)

    def _spare(self, pods: Iterable[Uid]) -> None:
        """Let the engine know of pods whose budgets allow no disruption: it would soon find out."""
        spared = [uid for uid in pods if any(self._allowed[i] <= 0 for i in self._covering(uid))]
        self.engine.cluster.failures.spare(spared, math.inf)

    def _covering(self, uid: Uid) -> list[int]:
        meta = self.pods[uid].metadata
        return [
            index
            for index, budget in enumerate(self._budgets)
            if budget.covers(meta.namespace, meta.labels)
        ]

    def _name(self, index: int) -> str:
        meta = self._budgets[index].metadata
        return f"{meta.namespace}/{meta.name}"

    def _put(self, pod: Pod) -> None:
        previous = self.pods[Uid(pod.metadata.uid)]
        self.pods[Uid(pod.metadata.uid)] = pod
        self.engine.cluster.apply(Change(EventType.MODIFIED, pod, previous))

    def _apply(self, kind: EventType, item: KubeObject) -> None:
        self.engine.cluster.apply(Change(kind, item, item))
