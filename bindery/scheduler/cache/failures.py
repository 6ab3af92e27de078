"""The memory of failures: nodes that jobs avoid, and jobs that are not planned for a while.

A job avoids a node for a cooldown after a binding failed there, or until the allocatable resources
of the node change. A job is postponed when its
BindRequest could not be created. Otherwise the scheduler would repeat the same decision in every
cycle, the hot loop that KAI-Scheduler's users report (its issues 2074 and 2075).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable

from bindery.api.bindrequest import BindFailureReason
from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.scheduler.cache.set_aside import SetAside
from bindery.scheduler.model.cooldowns import Cooldown
from bindery.scheduler.model.jobs import JobKey, Uid

SPARE_S = 60.0
"""Time in which a pod is not chosen as a victim again after its eviction was refused."""
MOST_REFUSALS = 8
"""Maximum number of refused plans for one job in a row.

One budget may protect hundreds of pods, and the scheduler would try them one after another."""


class FailureMemory:
    """What failed lately, for each job. All times are seconds since the epoch.

    `attempt_s`: the configured time for one attempt to plan a job.
    """

    def __init__(self, cooldown_s: float, attempt_s: float = 1.0) -> None:
        self.cooldown_s = cooldown_s
        """The longest cooldown."""
        self._cooldowns: dict[JobKey, dict[str, Cooldown]] = {}
        """Job -> node name -> its failed bindings there."""
        self.set_aside = SetAside(attempt_s)
        """The jobs that took too long."""
        self._spared: dict[Uid, float] = {}
        """Pod UID -> end of the time in which it is not evicted."""
        self._postponed: dict[JobKey, tuple[float, str]] = {}
        self._ending: dict[str, float] = {}
        """Namespace that is being deleted -> end of the time in which its jobs are not planned."""
        self._refused_room: dict[JobKey, tuple[float, str]] = {}
        self._refused_pods: defaultdict[JobKey, set[Uid]] = defaultdict(set)
        """Job -> the pods whose eviction for it was refused, while `_refused_room` lasts."""
        self._refusals: Counter[JobKey] = Counter()
        """Job -> number of refused plans to make room for it, while `_refused_room` lasts."""

    def note(
        self,
        statement: CommittedStatement,
        job_of: Callable[[str], JobKey | None],
        failed_at: float,
    ) -> None:
        """Remember the failed bindings of the finished `statement`. `job_of`: pod UID -> job.

        For pods that have not been seen yet, the job follows from the request itself.
        """
        namespace, group = statement.metadata.namespace, statement.spec.pod_group
        for pod in statement.status.unbound_pods:
            if pod.node and _blames_node(pod.reason):
                name = group.name if group is not None else pod.pod_name
                job = job_of(pod.pod_uid) or JobKey(namespace, name, group is not None)
                nodes = self._cooldowns.setdefault(job, {})
                nodes[pod.node] = nodes.get(pod.node, Cooldown()).failed(failed_at)

    def expire(self, now: float) -> None:
        """Drop the entries that ended by `now`, and the counts of refused plans with them."""
        longest_s = self.cooldown_s
        for job, nodes in self._cooldowns.items():
            current = {name: it for name, it in nodes.items() if not it.is_over(longest_s, now)}
            self._cooldowns[job] = current
        self._drop_empty()
        self._spared = {uid: until for uid, until in self._spared.items() if until > now}
        self._ending = {name: until for name, until in self._ending.items() if until > now}
        self._postponed = _current(self._postponed, now)
        self.set_aside.expire(now)
        for job in self._refused_room.keys() - _current(self._refused_room, now).keys():
            self._forget_refused_room(job)

    def avoided(self, job: JobKey, now: float) -> list[str]:
        """Return the names of the nodes that `job` avoids at `now`."""
        nodes = self._cooldowns.get(job)
        if nodes is None:  # nearly all jobs
            return []
        return sorted(name for name, it in nodes.items() if it.until(self.cooldown_s) > now)

    def node_changed(self, name: str) -> None:
        """Forget the failures on a node that offers other resources or features."""
        for nodes in self._cooldowns.values():
            nodes.pop(name, None)
        self._drop_empty()

    def _drop_empty(self) -> None:
        self._cooldowns = {job: nodes for job, nodes in self._cooldowns.items() if nodes}

    def postpone(self, job: JobKey, until: float, why: str) -> None:
        """Do not plan `job` until `until`: its request could not be created."""
        self._postponed[job] = (until, why)

    def postponed(self, job: JobKey, now: float) -> str | None:
        """Return why `job` is not planned at `now`; None if it may be planned."""
        if self._ending.get(job.namespace, now) > now:
            return f"its namespace {job.namespace} is being deleted"
        until, why = self._postponed.get(job, (now, ""))
        return why if until > now else None

    def leave_namespace(self, namespace: str, until: float) -> None:
        """Do not plan the jobs of `namespace` until `until`: it is being deleted."""
        self._ending[namespace] = until

    def note_refused_room(
        self, job: JobKey, until: float, why: str, pods: Iterable[Uid] = ()
    ) -> None:
        """Remember until `until` that `pods` could not be evicted for `job`."""
        self._refused_room[job] = (until, why)
        self._refused_pods[job].update(pods)
        self._refusals[job] += 1

    def refused_room(self, job: JobKey, now: float) -> str | None:
        """Return why pods could not be evicted for `job` shortly before `now`; None if not so."""
        until, why = self._refused_room.get(job, (now, ""))
        return why if until > now else None

    def has_tried_enough(self, job: JobKey, now: float) -> bool:
        """Return whether `job` has reached `MOST_REFUSALS` and makes no plans for a while."""
        return self.refused_room(job, now) is not None and self._refusals[job] >= MOST_REFUSALS

    def spare(self, pods: Iterable[Uid], until: float) -> None:
        """Do not evict `pods` before `until`: a disruption budget forbids it."""
        for uid in pods:
            self._spared[uid] = until

    def reconsider(self, pods: Collection[Uid]) -> None:
        """Allow evictions of `pods` again, as a budget that forbade them has changed."""
        for uid in pods:
            self._spared.pop(uid, None)
        for job in [job for job, of in self._refused_pods.items() if not of.isdisjoint(pods)]:
            self._forget_refused_room(job)

    def spared(self, now: float) -> frozenset[Uid]:
        """Return the pods that must not be evicted at `now`."""
        return frozenset(uid for uid, until in self._spared.items() if until > now)

    def forget(self, job: JobKey) -> None:
        """Forget a deleted job."""
        self._cooldowns.pop(job, None)
        self._postponed.pop(job, None)
        self.set_aside.forget(job)
        self._forget_refused_room(job)

    def _forget_refused_room(self, job: JobKey) -> None:
        self._refused_room.pop(job, None)
        self._refusals.pop(job, None)
        self._refused_pods.pop(job, None)


def _blames_node(reason: str) -> bool:
    try:
        return BindFailureReason(reason).blames_node
    except ValueError:  # a binder plugin's own reason: plugins prepare things on the node
        return True


def _current(
    memory: dict[JobKey, tuple[float, str]], now: float
) -> dict[JobKey, tuple[float, str]]:
    """Return the entries of `memory` that have not ended by `now`."""
    return {job: entry for job, entry in memory.items() if entry[0] > now}
