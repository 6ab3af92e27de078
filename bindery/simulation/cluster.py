"""The cluster of a simulation: plays the API server, the binder and the nodes for one engine.

Only changed objects go to the engine, through the door of its watches. Binding takes no time; an
evicted pod leaves after its grace period and comes back if it has a controller.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from bindery.api.bindrequest import Phase
from bindery.api.configuration import SchedulerConfiguration
from bindery.api.times import timestamp
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.watched import Condition, KubeObject, Pod, PodGroup
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.commit.requests import as_stored
from bindery.scheduler.engine import Engine
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey, TaskStatus, Uid


@dataclass
class Clock:
    """A clock that only the simulation moves. `now`: seconds since the epoch."""

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


class SimulatedCluster:
    """An engine with its clock and pods."""

    def __init__(self, configuration: SchedulerConfiguration, start_s: float) -> None:
        self.clock = Clock(start_s)
        self.engine = Engine(configuration, self.clock)
        self.pods: dict[Uid, Pod] = {}
        """All pods that have not gone."""
        self._groups: dict[JobKey, PodGroup] = {}
        self._members: Counter[JobKey] = Counter()
        """PodGroup -> its pods that have not ended."""
        self._ended: dict[JobKey, list[Pod]] = {}
        """PodGroup -> its pods that have ended; they are removed with it."""
        self._requests: list[CommittedStatement] = []
        """The initial requests that are not finished yet."""
        self._lives = 0

    def add(self, item: KubeObject) -> None:
        """Create `item`."""
        if isinstance(item, Pod):
            self.pods[Uid(item.metadata.uid)] = item
            group = self._group_key(item)
            if group is not None:
                self._members[group] += 1
        elif isinstance(item, PodGroup):
            self._groups[JobKey(item.metadata.namespace, item.metadata.name, True)] = item
        elif isinstance(item, CommittedStatement) and not item.is_final:
            self._requests.append(item)
        self.engine.cluster.apply(Change(EventType.ADDED, item, None))

    def cycle(self) -> list[Bound]:
        """Run a cycle and bind what it commits; its evictions are in the engine's report."""
        bound: list[Bound] = []
        for draft in list(self.engine.cycle()):
            request = as_stored(draft)
            self._apply(EventType.ADDED, request)
            bound.extend(self._bind(request))
        return bound

    def offered(self) -> dict[str, float]:
        """Return what the nodes offer to queues, as `bindery queues` shows it: GPUs of claims and
        of shared cards included, in devices, cores and bytes.
        """
        with self.engine.session() as session:
            return session.state.axis.in_wholes(session.shares.total)

    def held(self) -> dict[str, float]:
        """Return what pods hold of what is offered, as their queues count it."""
        table = self.engine.cluster.state.queues
        return table.axis.in_wholes(table.allocated.sum(axis=1))

    def bind_requested(self) -> list[Bound]:
        """Bind the pods of the BindRequests that were added."""
        bound = [each for request in self._requests for each in self._bind(request)]
        self._requests.clear()
        return bound

    def begin_eviction(self, eviction: Eviction, gone_at: float) -> bool:
        """Begin the deletion of a pod that will have gone at `gone_at`; return whether it exists.

        The time is in seconds since the epoch.
        """
        uid = eviction.task.uid
        pod = self.pods.get(uid)
        if pod is None:
            return False
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=timestamp(gone_at))
        self._put(msgspec.structs.replace(pod, metadata=meta))
        self.engine.evicted(eviction)
        return True

    def release(self, uid: Uid) -> Pod | None:
        """Remove an evicted pod; return the pod that its controller creates in its place."""
        pod = self.pods.pop(uid, None)
        if pod is None:
            return None
        group = self._group_key(pod)
        if group is not None:
            self._members[group] -= 1
        self._apply(EventType.DELETED, pod)
        if not any(owner.controller for owner in pod.metadata.owner_references):
            return None
        reborn = self._reborn(pod)
        self.add(reborn)
        return reborn

    def end(self, uid: Uid) -> None:
        """Let a pod succeed. It is removed at once; a pod of a gang with the last of its gang."""
        pod = self.pods.pop(uid)
        group = self._group_key(pod)
        if group is None:
            self._apply(EventType.DELETED, pod)
            return
        status = msgspec.structs.replace(pod.status, phase="Succeeded")
        ended = msgspec.structs.replace(pod, status=status)
        self._apply(EventType.MODIFIED, ended, pod)
        self._ended.setdefault(group, []).append(ended)
        self._members[group] -= 1
        if not self._members[group]:
            self._remove_group(group)

    def is_running(self, uid: Uid) -> bool:
        """Return whether the pod is on a node and not being deleted."""
        task = self.engine.cluster.state.tasks.get(uid)
        return task is not None and task.status is TaskStatus.RUNNING

    def _remove_group(self, key: JobKey) -> None:
        for pod in self._ended.pop(key, ()):
            self._apply(EventType.DELETED, pod)
        group = self._groups.pop(key, None)
        if group is not None:
            self._apply(EventType.DELETED, group)
        del self._members[key]

    def _bind(self, statement: CommittedStatement) -> Iterator[Bound]:
        """Bind the pods of `request` that wait, and remove it."""
        condition = Condition(
            type="PodScheduled", status="True", last_transition_time=timestamp(self.clock.now)
        )
        bound: list[str] = []
        for binding in statement.spec.pods:
            pod = self.pods.get(Uid(binding.pod_uid))
            if pod is None or pod.spec.node_name:
                continue
            for item in self.engine.bind_effects(pod, binding):
                if isinstance(item, Pod):
                    pod = item  # the engine gets it once, with its node
                else:
                    self._apply(EventType.MODIFIED, item)
            spec = msgspec.structs.replace(pod.spec, node_name=binding.selected_node)
            status = msgspec.structs.replace(pod.status, phase="Running", conditions=[condition])
            self._put(msgspec.structs.replace(pod, spec=spec, status=status))
            bound.append(binding.pod_uid)
            yield Bound(
                Uid(binding.pod_uid), self.engine.cluster.job_key(pod), binding.selected_node
            )
        done = msgspec.structs.replace(
            statement.status, phase=Phase.SUCCEEDED.value, bound_pods=bound
        )
        self._apply(EventType.DELETED, msgspec.structs.replace(statement, status=done))

    def _reborn(self, pod: Pod) -> Pod:
        self._lives += 1
        life = f"{pod.metadata.uid.partition('+')[0]}+{self._lives}"
        meta = msgspec.structs.replace(
            pod.metadata,
            uid=life,
            creation_timestamp=timestamp(self.clock.now),
            deletion_timestamp=None,
        )
        spec = msgspec.structs.replace(pod.spec, node_name="")
        status = msgspec.structs.replace(pod.status, phase="Pending", conditions=None)
        return msgspec.structs.replace(pod, metadata=meta, spec=spec, status=status)

    def _group_key(self, pod: Pod) -> JobKey | None:
        key = self.engine.cluster.job_key(pod)
        return key if key.is_group else None

    def _put(self, pod: Pod) -> None:
        uid = Uid(pod.metadata.uid)
        before, self.pods[uid] = self.pods[uid], pod
        self._apply(EventType.MODIFIED, pod, before)

    def _apply(self, kind: EventType, item: KubeObject, before: KubeObject | None = None) -> None:
        previous = item if kind is EventType.DELETED else before
        self.engine.cluster.apply(Change(kind, item, previous))


def running_pods(items: Sequence[KubeObject]) -> list[Pod]:
    """Return the pods among `items` that are on a node and run."""
    return [
        item
        for item in items
        if isinstance(item, Pod) and item.spec.node_name and item.status.phase == "Running"
    ]
