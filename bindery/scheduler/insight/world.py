"""An engine over a set of objects in memory: the cluster as the scheduler would see it.

All commands that answer questions use it, and simulations. The caller reads the objects from an API
server or from a file. A world can carry out its plans, as the binder and the nodes would: binding
takes no time, and an evicted pod comes back if it has a controller.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from bindery.api.bindrequest import Phase
from bindery.api.configuration import SchedulerConfiguration
from bindery.api.times import timestamp
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.budgets import DisruptionBudget
from bindery.kube.objects.recreated import recreated
from bindery.kube.objects.watched import Condition, KubeObject, Pod
from bindery.kube.objects.workloads import WorkloadJob
from bindery.kube.watches.store import Change, EventType, Key, key_of
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.requests import as_stored
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import JobKey, TaskStatus, Uid


@dataclass
class Clock:
    """A clock that only its owner moves. `now`: seconds since the epoch."""

    now: float

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod that has just been bound."""

    uid: Uid
    job: JobKey
    node: str


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
        """All pods that have not gone."""
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

    def bind(self, drafts: Iterable[StatementDraft]) -> list[Bound]:
        """Let the pods of `drafts` run on their planned nodes; return those that are bound."""
        bound: list[Bound] = []
        for draft in drafts:
            statement = as_stored(draft)
            self._apply(EventType.ADDED, statement)
            bound.extend(self.bind_statement(statement))
        return bound

    def bind_statement(self, statement: CommittedStatement) -> list[Bound]:
        """Let the pods of `statement` that wait run on their planned nodes, and remove it."""
        bound: list[Bound] = []
        for binding in statement.spec.pods:
            pod = self.pods.get(Uid(binding.pod_uid))
            if pod is None or pod.spec.node_name:
                continue
            for item in self.engine.bind_effects(pod, binding):
                if isinstance(item, Pod):
                    pod = item  # the engine gets it once, with its node
                else:
                    self._apply(EventType.MODIFIED, item)
            self._run(pod, binding.selected_node)
            key = self.engine.cluster.job_key(pod)
            bound.append(Bound(Uid(binding.pod_uid), key, binding.selected_node))
        status = msgspec.structs.replace(
            statement.status,
            phase=Phase.SUCCEEDED.value,
            bound_pods=[each.uid for each in bound],
        )
        self._apply(EventType.DELETED, msgspec.structs.replace(statement, status=status))
        return bound

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

    def evict(self, uid: Uid, *, comes_back: bool = True, gone_at: float | None = None) -> None:
        """Start the deletion of a pod.

        Args:
            uid: of a pod that has not gone.
            comes_back: whether its controller creates it again.
            gone_at: when it will have gone, in seconds since the epoch; None: now.
        """
        pod = self.pods[uid]
        if not comes_back:
            self._ended.add(uid)
        at = timestamp(self.clock.now if gone_at is None else gone_at)
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=at)
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
            self.remove(uid)
        self._spare(self.pods)
        return bool(going)

    def remove(self, uid: Uid) -> Pod | None:
        """Remove a pod that is being deleted; return the pod that comes back in its place."""
        pod = self.pods.pop(uid)
        self._apply(EventType.DELETED, pod)
        has_controller = any(owner.controller for owner in pod.metadata.owner_references)
        if not has_controller or uid in self._ended:
            return None
        reborn = self._reborn(pod)
        self.add(reborn)
        return reborn

    # -- inside ----------------------------------------------------------------------------------

    def _run(self, pod: Pod, node: str) -> None:
        at = timestamp(self.clock.now)
        bound = Condition(type="PodScheduled", status="True", last_transition_time=at)
        spec = msgspec.structs.replace(pod.spec, node_name=node)
        status = msgspec.structs.replace(pod.status, phase="Running", conditions=[bound])
        self._put(msgspec.structs.replace(pod, spec=spec, status=status))

    def _reborn(self, pod: Pod) -> Pod:
        self._lives += 1
        uid = f"{pod.metadata.uid.partition('+')[0]}+{self._lives}"
        return recreated(pod, uid, self.clock.now)

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
