"""Rules for taking over node locks from other holders. Pure.

Used by `queues` when a node is locked, and by `sweep` for all locks. Invariant: a lock is never
taken from a holder that may be between its binding and its device allocation, however old the lock
is. The queue waits for such a node, and reports it as stalled.
"""

import math
from dataclasses import dataclass

from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.lock import NodeLock, decode
from bindery.api.hami.names import ASSIGNED_NODE, BIND_PHASE, BindPhase
from bindery.api.states import ENDED_POD_PHASES
from bindery.api.times import seconds
from bindery.binder.plugins.hami.objects import HolderPod

_CLOCKS_APART_S = 2.0
"""Tolerance in seconds: locks and creation times have whole seconds, and clocks differ."""
_SETTLING_S = 1.0
"""Seconds to wait: a device plugin reports the end of an allocation before it unlocks."""
_FINAL_PHASES = tuple(phase.value for phase in BindPhase if phase.is_final)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement about another holder's lock."""

    reason: str
    """One CamelCase word, for metrics."""
    is_live: bool = False
    """Whether the lock must be waited for, however long. If not, it may be taken after both of the
    following times."""
    until_s: float = 0.0
    """Earliest time, in seconds since the epoch; HAMi takes locks that are strictly older."""
    lasting_s: float = 0.0
    """Seconds for which the lock must have had this judgement."""

    def may_be_taken(self, now_s: float, found_s: float) -> bool:
        """Return whether the lock may be taken at `now_s`, if so judged since `found_s`."""
        return not self.is_live and now_s > self.until_s and now_s >= found_s + self.lasting_s

    def left_s(self, now_s: float, found_s: float) -> float:
        """Return the minimum seconds to wait; infinite for a live holder."""
        if self.is_live:
            return math.inf
        return max(0.0, self.until_s - now_s, found_s + self.lasting_s - now_s)


def read(value: str) -> NodeLock | None:
    """Parse the lock `value`; None if it is malformed."""
    try:
        return decode(value)
    except HamiFormatError:
        return None


def judge_unknown(lock: NodeLock | None, expire_s: float) -> Judgement:
    """Judge a lock without a known holder: malformed (None), or with only a time.

    HAMi itself never removes a malformed lock.
    """
    if lock is None:
        return Judgement("Malformed", lasting_s=expire_s)
    return Judgement("Anonymous", until_s=lock.since_s + expire_s)


def judge(lock: NodeLock, pod: HolderPod | None, node: str, expire_s: float) -> Judgement:
    """Judge the lock of a known holder; `pod`: the current holder, None if it does not exist."""
    if pod is None:
        return Judgement("Dangling")
    why_dead = _why_dead(lock, pod, node)
    if why_dead:
        return Judgement(why_dead)
    if not pod.spec.node_name:
        # A process is about to bind the holder, or has died before: HAMi's own rule decides.
        return Judgement("Unbound", until_s=lock.since_s + expire_s)
    if pod.metadata.annotations.get(BIND_PHASE) in _FINAL_PHASES:
        return Judgement("Allocated", lasting_s=_SETTLING_S)
    if pod.status.phase == "Running":
        # Devices are allocated when the kubelet admits a pod, before any container starts.
        return Judgement("Running", lasting_s=_SETTLING_S)
    return Judgement("Allocating", is_live=True)


def left_behind(
    lock: NodeLock, pod: HolderPod | None, node: str, now_s: float, expire_s: float
) -> str:
    """Return the reason to release a lock for which no pod waits; "" if it must stay.

    This rule is narrower than `judge`: a lock that blocks no pod is left to a holder that may live.
    """
    if pod is None:
        return "Dangling"
    if pod.status.phase in ENDED_POD_PHASES:
        return "Ended"
    is_expired = now_s > lock.since_s + expire_s
    return "Recreated" if is_expired and _is_successor(pod, lock, node) else ""


def _why_dead(lock: NodeLock, pod: HolderPod, node: str) -> str:
    if pod.status.phase in ENDED_POD_PHASES:
        return "Ended"
    if _is_successor(pod, lock, node):
        return "Recreated"
    if pod.spec.node_name not in ("", node):
        return "BoundElsewhere"
    return ""


def _is_successor(pod: HolderPod, lock: NodeLock, node: str) -> bool:
    """Return whether the pod was created after the lock, and the lock is not its own.

    Clocks may differ so much that a pod seems newer than its own lock. But a pod has its devices on
    the node before a lock is taken for it.
    """
    created_s = seconds(pod.metadata.creation_timestamp)
    is_newer = created_s is not None and created_s > lock.since_s + _CLOCKS_APART_S
    return is_newer and pod.metadata.annotations.get(ASSIGNED_NODE) != node
