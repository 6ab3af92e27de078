"""The memory of failures: a (job, node) pair whose bind failed is avoided for a cool-down, and a
job whose request could not be created is left alone for a while.

Without it a scheduler that prefers a node takes the same decision again every cycle, the hot loop
that KAI-Scheduler's users report (its issues 2074 and 2075).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable

from bindery.api.bindrequest import BindFailureReason
from bindery.kube.objects import BindRequest
from bindery.scheduler.model.jobs import JobKey, Uid

SPARE_S = 60.0
"""How long a pod is not chosen again as a victim after its eviction was refused."""
MOST_REFUSALS = 8
"""How many plans for one job may be refused in a row: one budget may guard hundreds of pods, and
each of them would be asked for in turn."""


class FailureMemory:
    """Job -> node name -> until when (seconds since the epoch) the pair is avoided."""

    def __init__(self, cooldown_s: float) -> None:
        self.cooldown_s = cooldown_s
        self._until: dict[JobKey, dict[str, float]] = {}
        self._spared: dict[Uid, float] = {}
        """Pod UID -> until when it is not evicted."""
        self._postponed: dict[JobKey, tuple[float, str]] = {}
        self._ending: dict[str, float] = {}
        """Namespace that is being deleted -> until when its jobs are left alone."""
        self._refused_room: dict[JobKey, tuple[float, str]] = {}
        self._refused_pods: defaultdict[JobKey, set[Uid]] = defaultdict(set)
        """Job -> the pods that were not evicted for it while `_refused_room` lasts."""
        self._refusals: Counter[JobKey] = Counter()
        """Job -> how many plans to make room for it were refused while `_refused_room` lasts."""

    def note(
        self, request: BindRequest, job_of: Callable[[str], JobKey | None], failed_at: float
    ) -> None:
        """Remember what `request`, which is final, says did not bind. `job_of`: pod UID -> job.

        Of pods that have not been seen yet, the request itself names the job.
        """
        namespace, group = request.metadata.namespace, request.spec.pod_group
        for pod in request.status.unbound_pods:
            if pod.node and _blames_node(pod.reason):
                name = group.name if group is not None else pod.pod_name
                job = job_of(pod.pod_uid) or JobKey(namespace, name, group is not None)
                nodes = self._until.setdefault(job, {})
                nodes[pod.node] = max(nodes.get(pod.node, 0.0), failed_at + self.cooldown_s)

    def avoided(self, job: JobKey, now: float) -> list[str]:
        """Return the names of the nodes that `job` avoids at `now`."""
        nodes = self._until.get(job)
        if nodes is None:
            return []
        current = {name: until for name, until in nodes.items() if until > now}
        if current:
            self._until[job] = current
        else:
            del self._until[job]
        return sorted(current)

    def postpone(self, job: JobKey, until: float, why: str) -> None:
        """Leave `job` alone until `until`: its request could not be created."""
        self._postponed[job] = (until, why)

    def postponed(self, job: JobKey, now: float) -> str | None:
        """Return why `job` is left alone at `now`, if it is."""
        ending = self._ending.get(job.namespace)
        if ending is not None and ending > now:
            return f"its namespace {job.namespace} is being deleted"
        self._ending.pop(job.namespace, None)
        return _current(self._postponed, job, now)

    def leave_namespace(self, namespace: str, until: float) -> None:
        """Leave all jobs of `namespace` alone until `until`: it is being deleted."""
        self._ending[namespace] = until

    def note_refused_room(
        self, job: JobKey, until: float, why: str, pods: Iterable[Uid] = ()
    ) -> None:
        """Remember until `until` that others, `pods`, could not be evicted for `job`."""
        self._refused_room[job] = (until, why)
        self._refused_pods[job].update(pods)
        self._refusals[job] += 1

    def refused_room(self, job: JobKey, now: float) -> str | None:
        """Return why others could not be evicted for `job` a short while before `now`."""
        why = _current(self._refused_room, job, now)
        if why is None:
            self._forget_refusals(job)
        return why

    def has_tried_enough(self, job: JobKey, now: float) -> bool:
        """Return whether so many plans for `job` were refused that it makes no more for a while."""
        return self.refused_room(job, now) is not None and self._refusals[job] >= MOST_REFUSALS

    def spare(self, pods: Iterable[Uid], until: float) -> None:
        """Evict none of `pods` before `until`: a disruption budget forbids it."""
        for uid in pods:
            self._spared[uid] = until

    def reconsider(self, pods: Collection[Uid]) -> None:
        """Let `pods` be evicted again, and for the jobs for which they were refused: what forbade
        it has changed.
        """
        for uid in pods:
            self._spared.pop(uid, None)
        for job in [job for job, of in self._refused_pods.items() if not of.isdisjoint(pods)]:
            self._refused_room.pop(job, None)
            self._forget_refusals(job)

    def spared(self, now: float) -> frozenset[Uid]:
        """Return the pods that are not to be evicted at `now`."""
        self._spared = {uid: until for uid, until in self._spared.items() if until > now}
        return frozenset(self._spared)

    def forget(self, job: JobKey) -> None:
        """Forget a job that is gone."""
        self._until.pop(job, None)
        self._postponed.pop(job, None)
        self._refused_room.pop(job, None)
        self._forget_refusals(job)

    def _forget_refusals(self, job: JobKey) -> None:
        self._refusals.pop(job, None)
        self._refused_pods.pop(job, None)


def _blames_node(reason: str) -> bool:
    try:
        return BindFailureReason(reason).blames_node
    except ValueError:  # a plugin's own word: what it prepares is at the node
        return True


def _current(memory: dict[JobKey, tuple[float, str]], job: JobKey, now: float) -> str | None:
    """Return what `memory` says of `job` at `now`; forget what is past."""
    until, why = memory.get(job, (now, ""))
    if until > now:
        return why
    memory.pop(job, None)
    return None
