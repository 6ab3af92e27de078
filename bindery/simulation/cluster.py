"""The cluster of a simulation: pods end, and evicted pods go after a grace period."""

from collections import Counter

import msgspec

from bindery.api.configuration import SchedulerConfiguration
from bindery.kube.objects.podgroups import PodGroup
from bindery.kube.objects.watched import KubeObject, Pod
from bindery.scheduler.model.evictions import Eviction
from bindery.scheduler.model.jobs import JobKey, TaskStatus, Uid
from bindery.scheduler.world import Bound, World


class SimulatedCluster(World):
    """A world in which pods end. A PodGroup goes with the last of its pods."""

    def __init__(self, configuration: SchedulerConfiguration, start_s: float) -> None:
        super().__init__((), configuration, start_s)
        self._groups: dict[JobKey, PodGroup] = {}
        self._members: Counter[JobKey] = Counter()
        """PodGroup -> its pods that have not ended."""
        self._ended_pods: dict[JobKey, list[Pod]] = {}
        """PodGroup -> its pods that have ended; they are removed with it."""

    def add(self, item: KubeObject) -> None:
        """Create `item`."""
        if isinstance(item, Pod):
            group = self._group_key(item)
            if group is not None:
                self._members[group] += 1
        elif isinstance(item, PodGroup):
            self._groups[JobKey(item.metadata.namespace, item.metadata.name, True)] = item
        self.put(item)

    def cycle(self) -> list[Bound]:
        """Run a cycle and bind its commits; its evictions are in the engine's report."""
        return self.bind(list(self.engine.cycle()))

    def offered(self) -> dict[str, float]:
        """Return what the nodes offer to queues, as `bindery queues` shows it: GPUs of claims and
        of shared cards included, in devices, cores and bytes.
        """
        with self.engine.session() as session:
            return session.state.axis.in_wholes(session.shares.total)

    def held(self) -> dict[str, float]:
        """Return the amounts that pods hold, as their queues count them."""
        table = self.engine.cluster.state.queues
        return table.axis.in_wholes(table.allocated.sum(axis=1))

    def bind_requested(self) -> list[Bound]:
        """Bind the pods of all Statements that have not ended."""
        waiting = [statement for statement in self.statements.values() if not statement.is_final]
        return [each for statement in waiting for each in self.bind_statement(statement)]

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
        pod = self.pods[uid]
        group = self._group_key(pod)
        if group is None:
            self.delete(pod)
            return
        status = msgspec.structs.replace(pod.status, phase="Succeeded")
        ended = msgspec.structs.replace(pod, status=status)
        self.put(ended)
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
            self.delete(pod)
        group = self._groups.pop(key, None)
        if group is not None:
            self.delete(group)
        del self._members[key]

    def _group_key(self, pod: Pod) -> JobKey | None:
        key = self.engine.cluster.job_key(pod)
        return key if key.is_group else None
