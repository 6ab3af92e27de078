"""Judges evictions between queues: a queue loses nothing of what its quota covers.

Compared are the first queues from the root down in which claimant and victim differ, as in reclaim.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from bindery.api.names import GPU_RESOURCE
from bindery.kube.objects.bindrequests import BindRequest
from bindery.kube.objects.watched import Pod
from tests.histories.apiserver.store import Change, ChangeType
from tests.histories.calm import Calm, in_force
from tests.histories.plan import QUIET_AFTER_S, GangPlan, Plan
from tests.recounting import ENDED, requested

_RESOURCES: Final = ("cpu", GPU_RESOURCE)
_LATE_S: Final = 10.0
"""From what a plan was made of to its last eviction."""
_BEHIND_S: Final = QUIET_AFTER_S * 0.3 + 10
"""The same, for a scheduler that a fault has befallen."""
_UNLIMITED: Final = float("inf")
_Held = tuple[str, Mapping[str, int]]
"""The queue of a pod, and the thousandths of each resource that it holds."""


class ShareJudge:
    """Knows queues, and what their pods hold, from the log."""

    def __init__(self, plan: Plan) -> None:
        self._calm = Calm(plan)
        self._keeping = {gang.queue for gang in plan.gangs if _holds_more(gang)}
        """Queues that also hold room without pods, which is not counted here."""
        self._parents: dict[str, str] = {}
        self._quotas: defaultdict[str, list[tuple[float, Mapping[str, float]]]] = defaultdict(list)
        """Queue -> its quotas, each with the moment from which they are in force."""
        self._pods: dict[str, tuple[Pod, str]] = {}
        """UID -> pod, and its queue; "" before its PodGroup has come."""
        self._committed: dict[str, frozenset[str]] = {}
        """UID of a request -> the UIDs of the pods that it has not bound or given up."""
        self._amounts: defaultdict[tuple[str, str], list[tuple[float, int]]] = defaultdict(
            lambda: [(0.0, 0)]
        )
        """Queue and resource -> what it held, each with the moment from which it did."""
        self._counted: dict[str, _Held] = {}
        """UID of a pod that holds room -> what is counted of it."""

    def see(self, change: Change, queue: str) -> None:
        """Take in a write. `queue`: that of a pod."""
        meta = change.version.object["metadata"]
        match change.kind.plural:
            case "queues":
                self._queue(change)
            case "bindrequests":
                before = self._committed.pop(meta["uid"], frozenset())
                if change.type is not ChangeType.DELETED:
                    self._committed[meta["uid"]] = _waiting(change)
                for uid in before | self._committed.get(meta["uid"], frozenset()):
                    self._count(uid, change.at_s)
            case "pods":
                pod = msgspec.json.decode(change.version.body, type=Pod)
                self._pods[meta["uid"]] = pod, queue
                if change.type is ChangeType.DELETED:
                    del self._pods[meta["uid"]]
                self._count(meta["uid"], change.at_s)

    def note_queue(self, uid: str, queue: str, at_s: float) -> None:
        """Note the queue of a pod if it was not known."""
        pod, known = self._pods.get(uid, (None, ""))
        if pod is not None and not known:
            self._pods[uid] = pod, queue
            self._count(uid, at_s)

    def problems(
        self, who: str, victim: str, claimants: Collection[str], change: Change
    ) -> Iterator[str]:
        """Yield that an eviction takes from a queue what its quota covers.

        `who`: what happens, in words. `victim`: the queue that loses. `claimants`: the queues of
        the gangs that may be meant to get the room.
        """
        levels = [self._apart(each, victim) for each in claimants]
        losing, keeping = set(levels), {level for q in self._keeping for level in self._chain(q)}
        if "" in losing or losing & keeping:
            return  # it may be for a gang of its own queue
        since_s = change.at_s - _LATE_S
        if not self._calm.is_calm(change.writer.caller, since_s, change.at_s, recovers_s=5.0):
            since_s = change.at_s - _BEHIND_S
        if not any(self._is_above_quota(level, since_s) for level in losing):
            yield f"{who}, and queue {' or '.join(sorted(losing))} holds no more than its quota"

    def _queue(self, change: Change) -> None:
        name, spec = change.key[1], change.version.object["spec"]
        self._parents[name] = spec.get("parent") or ""
        self._quotas[name].append((change.at_s, _quotas(spec)))

    def _chain(self, queue: str) -> list[str]:
        """Return a queue and those above it, from the root down."""
        found = [queue]
        while (parent := self._parents.get(found[0], "")) != "":
            found.insert(0, parent)
        return found

    def _apart(self, claimant: str, victim: str) -> str:
        """Return the queue that loses to the claimant's; "" if they are the same."""
        pairs = zip(self._chain(claimant), self._chain(victim), strict=False)
        return next((two for one, two in pairs if one != two), "")

    def _is_above_quota(self, queue: str, since_s: float) -> bool:
        """Whether a queue held more than a quota at some time since `since_s`."""
        return any(
            max(in_force(self._amounts[queue, resource], since_s))
            > self._least_quota(queue, resource, since_s)
            for resource in _RESOURCES
        )

    def _least_quota(self, queue: str, resource: str, since_s: float) -> float:
        quotas = in_force(self._quotas[queue], since_s)
        return min(each.get(resource, _UNLIMITED) for each in quotas)

    def _count(self, uid: str, at_s: float) -> None:
        """Count again what a pod holds."""
        known, found = self._counted.pop(uid, None), self._held(uid)
        for held, sign in ((known, -1), (found, 1)):
            if held is not None:
                for queue in self._chain(held[0]):
                    for resource, amount in held[1].items():
                        amounts = self._amounts[queue, resource]
                        amounts.append((at_s, amounts[-1][1] + sign * amount))
        if found is not None:
            self._counted[uid] = found

    def _held(self, uid: str) -> _Held | None:
        pod, queue = self._pods.get(uid, (None, ""))
        if pod is None or not queue or pod.status.phase in ENDED:
            return None
        is_placed = pod.spec.node_name or any(uid in each for each in self._committed.values())
        if not is_placed or pod.metadata.deletion_timestamp is not None:
            return None
        return queue, {resource: requested(pod, resource) for resource in _RESOURCES}


def _holds_more(gang: GangPlan) -> bool:
    return gang.needs is not None and (gang.needs.stage is not None or gang.needs.is_exclusive)


def _quotas(spec: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the quotas of a queue in thousandths. Without a rule, it has no GPUs.

    What a queue holds above its limit, it holds above its quota: people have lowered the limit.
    """
    rule = spec.get("resources", {}).get("cpu", {})
    cores = [float(rule[each]) for each in ("quota", "limit") if float(rule.get(each, -1)) >= 0]
    return {GPU_RESOURCE: 0.0} | ({"cpu": min(cores) * 1000} if cores else {})


def _waiting(change: Change) -> frozenset[str]:
    request = msgspec.json.decode(change.version.body, type=BindRequest)
    return frozenset(
        pod.pod_uid for each in request.each() if not each.is_final for pod in each.spec.pods
    )
