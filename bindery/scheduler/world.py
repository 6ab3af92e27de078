"""The cluster in memory, for questions about a cluster, simulations and scenarios.

A world has the objects of an API server, an engine that gets every change of them as from a watch,
and a clock. It carries out plans as the binder and the nodes would: binding takes no time, and an
evicted pod comes back if it has a controller. Subclasses add what happens otherwise.
"""

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec

from bindery.api.bindrequest import Phase
from bindery.api.configuration import SchedulerConfiguration
from bindery.api.times import timestamp
from bindery.kube.objects.bindrequests import CommittedStatement, PodBinding
from bindery.kube.objects.budgets import DisruptionBudget
from bindery.kube.objects.claims import ResourceClaim
from bindery.kube.objects.recreated import recreated
from bindery.kube.objects.watched import Condition, KubeObject, Node, Pod
from bindery.kube.objects.workloads import WorkloadJob
from bindery.kube.watches.store import Change, EventType, Key, key_of
from bindery.scheduler.cache.holds import Carried, carried
from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.commit.requests import as_stored
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.jobs import JobKey, TaskStatus, Uid
from bindery.scheduler.usage.source import UsageSoFar, past_usage


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


class Objects:
    """The objects of an API server. `apply` gets every change."""

    def __init__(self, apply: Callable[[Change[KubeObject]], object]) -> None:
        self._notify = apply
        self.pods: dict[Uid, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.statements: dict[Carried, CommittedStatement] = {}
        """The Statements in BindRequests."""
        self.claims: dict[Key, ResourceClaim] = {}
        self.workload_jobs: dict[str, WorkloadJob] = {}
        """By UID; the scheduler does not watch them."""
        self._others: dict[Hashable, KubeObject] = {}

    def everything(self) -> list[KubeObject]:
        """Return all objects; pods after the objects that they refer to."""
        kinds = (self.nodes, self._others, self.claims, self.pods, self.statements)
        return list(chain(*(kind.values() for kind in kinds), self.workload_jobs.values()))

    def put(self, item: KubeObject) -> None:
        """Create `item`, or replace the object of its identity."""
        stored, key = self._place(item)
        previous = stored.get(key)
        stored[key] = item
        kind = EventType.ADDED if previous is None else EventType.MODIFIED
        self._tell(Change(kind, item, previous))

    def delete(self, item: KubeObject) -> None:
        """Delete `item`, an object as it is stored."""
        stored, key = self._place(item)
        del stored[key]
        self._tell(Change(EventType.DELETED, item, item))

    def _tell(self, change: Change[KubeObject]) -> None:
        if not isinstance(change.object, WorkloadJob):
            self._notify(change)

    def _place(self, item: KubeObject) -> tuple[dict[Any, Any], Hashable]:
        """Return the objects of the kind of `item`, and its identity among them."""
        match item:
            case Pod():
                return self.pods, Uid(item.metadata.uid)
            case Node():
                return self.nodes, item.metadata.name
            case CommittedStatement():
                return self.statements, carried(item)
            case ResourceClaim():
                return self.claims, key_of(item.metadata)
            case WorkloadJob():
                return self.workload_jobs, item.metadata.uid
        return self._others, (type(item), *key_of(item.metadata))


class World(Objects):
    """A cluster in memory, with an engine and a clock."""

    def __init__(
        self,
        objects: Iterable[KubeObject],
        configuration: SchedulerConfiguration,
        now: float,
    ) -> None:
        """`now`: seconds since the epoch."""
        self.clock = Clock(now)
        self.engine = Engine(configuration, self.clock)
        super().__init__(self.engine.cluster.apply)
        self._ended: set[Uid] = set()
        """Evicted pods that are not created again."""
        self._lives = 0
        """Number of pods that were created again after an eviction."""
        for item in objects:
            self.put(item)
        self.engine.spare_protected(math.inf)

    def remember(self, past: UsageSoFar | None) -> None:
        """Let queues have the `past` usage, by which their shares differ."""
        self.engine.past = past_usage(self.engine.configuration.usage, past)

    # -- binder and nodes ------------------------------------------------------------------------

    def bind(self, drafts: Iterable[StatementDraft]) -> list[Bound]:
        """Let the pods of `drafts` run on their planned nodes; return the bound pods."""
        bound: list[Bound] = []
        for draft in drafts:
            statement = as_stored(draft)
            self.put(statement)
            bound.extend(self.bind_statement(statement))
        return bound

    def bind_statement(self, statement: CommittedStatement) -> list[Bound]:
        """Let the pods of `statement` that wait run on their planned nodes, and remove it."""
        bound: list[Bound] = []
        for binding in statement.spec.pods:
            pod = self.pods.get(Uid(binding.pod_uid))
            if pod is None or pod.spec.node_name:
                continue
            self.bind_pod(pod, binding)
            key = self.engine.cluster.job_key(pod)
            bound.append(Bound(Uid(binding.pod_uid), key, binding.selected_node))
        status = msgspec.structs.replace(
            statement.status,
            phase=Phase.SUCCEEDED.value,
            bound_pods=[each.uid for each in bound],
        )
        self.delete(msgspec.structs.replace(statement, status=status))
        return bound

    def bind_pod(self, pod: Pod, binding: PodBinding) -> None:
        """Write what the binder writes for `pod`, and let it run on its planned node."""
        for item in self.engine.bind_effects(pod, binding):
            if isinstance(item, Pod):
                pod = item  # the engine gets it once, with its node
            else:
                self.put(item)
        self.run(pod, binding.selected_node)

    def run(self, pod: Pod, node: str) -> None:
        """Start `pod` on `node`; it fails if the node refuses it."""
        reason = self.admit(pod, node)
        status = msgspec.structs.replace(
            pod.status,
            phase="Failed" if reason else "Running",
            reason=reason,
            conditions=[bound_condition(self.clock.now)],
        )
        spec = msgspec.structs.replace(pod.spec, node_name=node)
        self.put(msgspec.structs.replace(pod, spec=spec, status=status))

    def admit(self, pod: Pod, node: str) -> str:  # noqa: ARG002  # for subclasses
        """Return the reason for which `node` refuses `pod`; empty if it takes the pod."""
        return ""

    def refused(self, pods: Iterable[Uid]) -> tuple[Uid, str] | None:
        """Count the evictions of `pods` against their budgets.

        If a budget forbids one, count nothing and return that pod and the name of the budget.
        """
        counted: dict[Key, DisruptionBudget] = {}
        cluster = self.engine.cluster
        refused = cluster.budgets.count((cluster.state.tasks[uid] for uid in pods), counted)
        if refused is None:
            for budget in counted.values():
                self.put(budget)
        return refused

    def evict(self, uid: Uid, *, comes_back: bool = True, gone_at: float | None = None) -> None:
        """Start the deletion of a pod; it will have gone at `gone_at`, None: now."""
        pod = self.pods[uid]
        if not comes_back:
            self._ended.add(uid)
        at = timestamp(self.clock.now if gone_at is None else gone_at)
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=at)
        self.put(msgspec.structs.replace(pod, metadata=meta))

    def release(self) -> bool:
        """Remove the pods that are being deleted; return whether there were any.

        A pod comes back and waits if its controller creates it again. A pod that is stuck in
        deletion stays.
        """
        going = [uid for uid, pod in self.pods.items() if self.is_going(pod)]
        for uid in going:
            self.remove(uid)
        return bool(going)

    def is_going(self, pod: Pod) -> bool:
        """Return whether `pod` is being deleted, is in this pool or on a node, and is not stuck."""
        if pod.metadata.deletion_timestamp is None:
            return False
        task = self.engine.cluster.state.tasks.get(Uid(pod.metadata.uid))
        return task is not None and task.status is TaskStatus.RELEASING

    def remove(self, uid: Uid) -> Pod | None:
        """Remove a pod that is being deleted; return the pod that comes back in its place."""
        pod = self.pods[uid]
        self.delete(pod)
        has_controller = any(owner.controller for owner in pod.metadata.owner_references)
        if not has_controller or uid in self._ended:
            return None
        reborn = self.created_again(pod)
        self.put(reborn)
        return reborn

    def created_again(self, pod: Pod) -> Pod:
        """Return the pod that the controller of `pod` creates in its place."""
        self._lives += 1
        uid = f"{pod.metadata.uid.partition('+')[0]}+{self._lives}"
        return recreated(pod, uid, self.clock.now)


def bound_condition(at: float) -> Condition:
    """Return the condition that the API server writes on a pod that was bound at `at`."""
    return Condition(type="PodScheduled", status="True", last_transition_time=timestamp(at))
