"""An engine over a fixed set of objects: the cluster as the scheduler would see it now.

All commands that answer questions use it. The caller reads the objects from an API server or from a
file. A world can carry out its plans, as the binder and the nodes would.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from bindery.api.bindrequest import Phase
from bindery.api.configuration import SchedulerConfiguration
from bindery.api.times import timestamp
from bindery.kube.objects.budgets import DisruptionBudget
from bindery.kube.objects.watched import Condition, KubeObject, Pod
from bindery.kube.objects.workloads import WorkloadJob
from bindery.kube.watches.store import Change, EventType, Key, key_of
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.requests import as_stored
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import TaskStatus, Uid


@dataclass
class Clock:
    """A clock that only its owner moves. `now`: seconds since the epoch."""

    now: float

    def __call__(self) -> float:
        """Return the time."""
        return self.now


class World:
    """An engine, its clock, and its pods."""

    def __init__(
        self,
        objects: Iterable[KubeObject],
        configuration: SchedulerConfiguration,
        now: float,
    ) -> None:
        """`now`: seconds since the epoch."""
        self.clock = Clock(now)
        self.engine = Engine(configuration, self.clock)
        self.pods: dict[Uid, Pod] = {}
        self.workload_jobs: dict[str, WorkloadJob] = {}
        """UID -> Job; the fate of evicted pods depends on it."""
        self._ended: set[Uid] = set()
        """Evicted pods that are not created again."""
        self._lives = 0
        """Number of pods that were created again after an eviction."""
        for item in objects:
            self.add(item)
        self._spare(self.pods)

    def add(self, item: KubeObject) -> None:
        """Add `item`, or replace the object of its name."""
        if isinstance(item, WorkloadJob):
            self.workload_jobs[item.metadata.uid] = item
            return
        if isinstance(item, Pod):
            self.pods[Uid(item.metadata.uid)] = item
        self.engine.cluster.apply(Change(EventType.ADDED, item, None))

    # -- binder and nodes ------------------------------------------------------------------------

    def bind(self, drafts: Sequence[StatementDraft]) -> None:
        """Let the pods of `drafts` run on their planned nodes."""
        for draft in drafts:
            request = as_stored(draft)
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
        """Count the evictions of `pods` against their budgets.

        If a budget forbids one, count nothing and return that pod and the name of the budget.
        """
        counted: dict[Key, DisruptionBudget] = {}
        refused = self._count(pods, counted)
        if refused is None:
            for budget in counted.values():
                self._apply(EventType.MODIFIED, budget)
        return refused

    def refusing_budget(self, pods: Iterable[Uid]) -> str:
        """Return the budget that forbids to evict all of `pods` together; empty if none does."""
        refused = self._count(pods, {})
        return "" if refused is None else refused[1]

    def evict(self, uid: Uid, *, comes_back: bool) -> None:
        """Start the deletion of a pod. `comes_back`: whether its controller creates it again."""
        pod = self.pods[uid]
        if not comes_back:
            self._ended.add(uid)
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=timestamp(self.clock.now))
        self._put(msgspec.structs.replace(pod, metadata=meta))

    def release(self) -> bool:
        """Remove the pods that are being deleted; return whether there were any.

        A pod comes back and waits if its controller creates it again. A pod that is stuck in
        deletion stays.
        """
        tasks = self.engine.cluster.state.tasks
        # Pods of other pools are not tasks in this engine.
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
            has_controller = any(owner.controller for owner in pod.metadata.owner_references)
            if has_controller and uid not in self._ended:
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
        """Spare the pods of exhausted budgets, as the engine would after the first refusal."""
        cluster = self.engine.cluster
        spared = [
            uid
            for uid in pods
            if (task := cluster.state.tasks.get(uid)) and cluster.blocking_budget(task)
        ]
        cluster.failures.spare(spared, math.inf)

    def _count(
        self, pods: Iterable[Uid], counted: dict[Key, DisruptionBudget]
    ) -> tuple[Uid, str] | None:
        """Count `pods` against their budgets and write the new budgets into `counted`.

        Returns the first pod that may not go and its budget; None if all may.
        """
        for uid in pods:
            meta = self.pods[uid].metadata
            for known in self.engine.cluster.budgets.covering(meta.namespace, meta.labels):
                key = key_of(known.metadata)
                budget = counted.get(key, known)
                allowed = budget.status.disruptions_allowed
                if allowed <= 0:
                    return uid, budget.full_name
                status = msgspec.structs.replace(budget.status, disruptions_allowed=allowed - 1)
                counted[key] = msgspec.structs.replace(budget, status=status)
        return None

    def _put(self, pod: Pod) -> None:
        previous = self.pods[Uid(pod.metadata.uid)]
        self.pods[Uid(pod.metadata.uid)] = pod
        self.engine.cluster.apply(Change(EventType.MODIFIED, pod, previous))

    def _apply(self, kind: EventType, item: KubeObject) -> None:
        self.engine.cluster.apply(Change(kind, item, item))
