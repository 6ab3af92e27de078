"""The cluster of a simulation: a world whose pods end, and go a grace period after an eviction."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.kube.watches.store import Change, EventType
from bindery.scheduler.insight.world import Bound, World
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey, TaskStatus, Uid


class SimulatedCluster(World):
    """A world whose pods end, and whose PodGroups go with the last of their pods."""

    def __init__(self, configuration: SchedulerConfiguration, start_s: float) -> None:
        super().__init__((), configuration, start_s)
        self._groups: dict[JobKey, PodGroup] = {}
        self._members: Counter[JobKey] = Counter()
        """PodGroup -> its pods that have not ended."""
        self._ended_pods: dict[JobKey, list[Pod]] = {}
        """PodGroup -> its pods that have ended; they are removed with it."""
        self._requested: list[CommittedStatement] = []
        """The initial Statements that are not finished yet."""

    def add(self, item: KubeObject) -> None:
        """Create `item`."""
        if isinstance(item, Pod):
            group = self._group_key(item)
            if group is not None:
                self._members[group] += 1
        elif isinstance(item, PodGroup):
            self._groups[JobKey(item.metadata.namespace, item.metadata.name, True)] = item
        elif isinstance(item, CommittedStatement) and not item.is_final:
            self._requested.append(item)
        super().add(item)

    def cycle(self) -> list[Bound]:
        """Run a cycle and bind what it commits; its evictions are in the engine's report."""
        return self.bind(list(self.engine.cycle()))

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
        """Bind the pods of the Statements that were added."""
        bound = [each for statement in self._requested for each in self.bind_statement(statement)]
        self._requested.clear()
        return bound

    def begin_eviction(self, eviction: Eviction, gone_at: float) -> bool:
        """Begin the deletion of a pod that will have gone at `gone_at`; return whether it exists.

        The time is in seconds since the epoch.
        """
        uid = eviction.task.uid
        if uid not in self.pods:
            return False
        self.evict(uid, gone_at=gone_at)
        self.engine.evicted(eviction)
        return True

    def remove(self, uid: Uid) -> Pod | None:
        """Remove an evicted pod; return the pod that its controller creates in its place."""
        group = self._group_key(self.pods[uid])
        if group is not None:
            self._members[group] -= 1
        return super().remove(uid)

    def end(self, uid: Uid) -> None:
        """Let a pod succeed. It is removed at once; a pod of a gang with the last of its gang."""
        pod = self.pods.pop(uid)
        group = self._group_key(pod)
        if group is None:
            self._apply(EventType.DELETED, pod)
            return
        status = msgspec.structs.replace(pod.status, phase="Succeeded")
        ended = msgspec.structs.replace(pod, status=status)
        self.engine.cluster.apply(Change(EventType.MODIFIED, ended, pod))
        self._ended_pods.setdefault(group, []).append(ended)
        self._members[group] -= 1
        if not self._members[group]:
            self._remove_group(group)

    def is_running(self, uid: Uid) -> bool:
        """Return whether the pod is on a node and not being deleted."""
        task = self.engine.cluster.state.tasks.get(uid)
        return task is not None and task.status is TaskStatus.RUNNING

    def _remove_group(self, key: JobKey) -> None:
        for pod in self._ended_pods.pop(key, ()):
            self._apply(EventType.DELETED, pod)
        group = self._groups.pop(key, None)
        if group is not None:
            self._apply(EventType.DELETED, group)
        del self._members[key]

    def _group_key(self, pod: Pod) -> JobKey | None:
        key = self.engine.cluster.job_key(pod)
        return key if key.is_group else None


def running_pods(items: Sequence[KubeObject]) -> list[Pod]:
    """Return the pods among `items` that are on a node and run."""
    return [
        item
        for item in items
        if isinstance(item, Pod) and item.spec.node_name and item.status.phase == "Running"
    ]
