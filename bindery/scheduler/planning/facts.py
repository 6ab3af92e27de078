"""The facts of one cycle: answers about the cluster that no plan changes and no plugin gives.

The session extends them. Each answer is computed once, when it is first needed.
"""

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bindery.api.times import seconds
from bindery.kube.objects.queueaccess import AccessRefusal
from bindery.kube.objects.watched import Pod
from bindery.scheduler.cache.access import refusal_of_job
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.model.expected_ends import ExpectedEnds
from bindery.scheduler.model.jobs import Job, Task, Uid
from bindery.scheduler.model.labels import LabelColumns
from bindery.scheduler.model.nominations import Nominated
from bindery.scheduler.model.state import PlanState
from bindery.scheduler.planning.memory import Memory
from bindery.scheduler.planning.run_times import RunTimeLimit, exceeded


class SessionFacts:
    """Nodes, queues and jobs at `now` (epoch seconds), with the results of earlier cycles."""

    def __init__(self, cluster: Cluster, now: float) -> None:
        self.state: PlanState = cluster.state
        self.now = now
        self._cluster = cluster
        self.memory = Memory(cluster, now)
        """The results of earlier cycles."""
        self.order: NDArray[np.intp] = self.state.nodes.in_name_order()
        """Position -> node row, nodes sorted by name."""
        self.position: NDArray[np.intp] = np.zeros(len(self.state.nodes.nodes), dtype=np.intp)
        """Node row -> position."""
        self.position[self.order] = np.arange(len(self.order))
        self._priorities: dict[Job, int] = {}
        self._queue_problems: dict[int, tuple[str, str] | None] = {}
        self._access: dict[Job, AccessRefusal | None] = {}
        self._nominated: dict[int, Nominated | None] = {}
        self._nominated_priorities = self.state.nominations.priorities()

    # -- nodes ---------------------------------------------------------------------------------

    @cached_property
    def labels(self) -> LabelColumns:
        """Label values as columns over node rows."""
        return LabelColumns(self.state.nodes)

    @cached_property
    def cluster_total(self) -> NDArray[np.int64]:
        """Sum of allocatable over all nodes [resource]; at least 1, because it is a divisor."""
        return np.asarray(np.maximum(self.state.nodes.allocatable.sum(axis=1), 1))

    @cached_property
    def largest_allocatable(self) -> NDArray[np.int64]:
        """Maximum of allocatable over nodes [resource]; at least 1, because it is a divisor."""
        return np.asarray(np.maximum(self.state.nodes.allocatable.max(axis=1, initial=0), 1))

    @cached_property
    def expected_ends(self) -> ExpectedEnds:
        """When running pods with an expected run time end, as of the first call."""
        return ExpectedEnds(self.state, self.now)

    @cached_property
    def has_soft_taints(self) -> bool:
        """Whether any node has a taint of effect PreferNoSchedule."""
        nodes = filter(None, self.state.nodes.nodes)
        return any(t.effect == "PreferNoSchedule" for node in nodes for t in node.spec.taints or ())

    # -- jobs and queues -----------------------------------------------------------------------

    def priority(self, job: Job) -> int:
        """Return the priority of `job`."""
        priority = self._priorities.get(job)
        if priority is None:
            priority = self._priorities[job] = self._cluster.priority(job)
        return priority

    def priority_is_known(self, job: Job) -> bool:
        """Return whether the job's PriorityClass exists; True for a job without one."""
        known = self._cluster.priority_classes
        return job.priority_class is None or job.priority_class in known

    def never_preempts(self, job: Job) -> bool:
        """Return whether the job's PriorityClass has preemptionPolicy Never."""
        return self._cluster.priority_classes.never_preempts(job.priority_class)

    def pod(self, task: Task) -> Pod | None:
        """Return the pod of `task` if it is unbound and belongs to this scheduler; else None."""
        return self._cluster.pods.get(task.uid)

    def handed_over(self, plugin: str) -> Iterator[tuple[Uid, str, Mapping[str, Any]]]:
        """Yield pod, node name and the data of `plugin` for the binder.

        For pods with a BindRequest, and for pods that were bound while this process was running.
        The binder is done with a bound pod, so nothing is yielded for it once it is gone.
        """
        holds = self._cluster.holds
        for uid, hold in chain(holds.with_data(), holds.settled.items()):
            data = hold.data.get(plugin)
            if not isinstance(data, dict):  # other clients can create requests too
                continue
            if not hold.is_bound or uid in self.state.tasks:
                yield uid, hold.node_name, data

    def queue_row(self, job: Job) -> int:
        """Return the row of the job's queue."""
        return self.state.queues.row(job.queue)

    def queue_problem(self, row: int) -> tuple[str, str] | None:
        """Return why no job of the queue at `row` can be planned: (reason, text), or None."""
        if row not in self._queue_problems:
            self._queue_problems[row] = self.state.queues.problem(row)
        return self._queue_problems[row]

    def access_refusal(self, job: Job) -> AccessRefusal | None:
        """Return why `job` may not use its queue in this way; None if it may."""
        if job not in self._access:
            pods, namespaces = self._cluster.pods, self._cluster.namespaces
            self._access[job] = refusal_of_job(self.state.queues, job, pods, namespaces)
        return self._access[job]

    @cached_property
    def has_run_time_limits(self) -> bool:
        """Whether any queue or PodGroup limits run times."""
        return any(entry.max_run_time_s < math.inf for entry in self.state.queues.entries) or any(
            job.run_time_limit_s < math.inf for job in self.state.jobs.values()
        )

    def exceeded_limit(self, job: Job) -> RunTimeLimit | None:
        """Return the run time limit that `job` has reached; None if it may go on."""
        if not self.has_run_time_limits:  # asked for every job
            return None
        return exceeded(self.state.queues, job, self.now)

    def pending_since(self, job: Job) -> float:
        """Return the latest creation of `job` and its pending pods: seconds since the epoch."""
        times = [seconds(task.created) for task in job.pending.values()]
        return max((at for at in (*times, seconds(job.created)) if at is not None), default=0.0)

    def running_since(self, job: Job) -> float:
        """Return when the first pod of `job` was bound: seconds since the epoch, or 0."""
        times = [task.bound_at for task in job.tasks.values() if task.bound_at is not None]
        return min(times, default=0.0)

    def nominated(self, job: Job) -> Nominated | None:
        """Return the nominated pods of other schedulers that count for pods of `job`."""
        if not self._nominated_priorities:  # nearly always
            return None
        counting = [each for each in self._nominated_priorities if each >= self.priority(job)]
        if not counting:
            return None
        least = counting[-1]
        if least not in self._nominated:
            self._nominated[least] = self.state.nominations.from_priority(least, self.state.nodes)
        return self._nominated[least]
