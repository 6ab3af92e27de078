"""Rules for taking over node locks from other holders: pure.

Asked by `queues` when a lock stands in the way, and by `sweep` about all locks. The invariant: a
lock is never taken from a holder that may still be between its binding and its devices, however old
the lock is; such a node is waited for, and reported as stalled.
"""

import math
from dataclasses import dataclass

from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.lock import NodeLock, decode
from bindery.api.hami.names import BIND_PHASE, BindPhase
from bindery.api.states import ENDED_POD_PHASES
from bindery.api.times import seconds
from bindery.binder.plugins.hami.objects import HolderPod

_CLOCKS_APART_S = 2.0
"""Locks have whole seconds, as have creation times, and clocks differ."""
_SETTLING_S = 1.0
"""A device plugin first reports that it is done with a pod, and then removes the lock."""
_FINAL_PHASES = tuple(phase.value for phase in BindPhase if phase.is_final)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of another holder's lock."""

    reason: str
    """One CamelCase word, for metrics."""
    is_live: bool = False
    """Whether it must be waited for, however long that takes. If not, it may be taken once both of
    the following are over."""
    until_s: float = 0.0
    """Seconds since the epoch; HAMi takes a lock that is strictly older than its time."""
    lasting_s: float = 0.0
    """For how long it must have been found so."""

    def may_be_taken(self, now_s: float, found_s: float) -> bool:
        """Return whether the lock may be taken at `now_s`, if it was found so at `found_s` first;
        all in seconds since the epoch.
        """
        return not self.is_live and now_s > self.until_s and now_s >= found_s + self.lasting_s

    def left_s(self, now_s: float, found_s: float) -> float:
        """Return for how many seconds it must be waited at least; infinite for a live holder."""
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
    """Judge a lock without a known holder: malformed (None), or with a time alone.

    HAMi itself never heals a malformed one.
    """
    if lock is None:
        return Judgement("Malformed", lasting_s=expire_s)
    return Judgement("Anonymous", until_s=lock.since_s + expire_s)


def judge(lock: NodeLock, pod: HolderPod | None, node: str, expire_s: float) -> Judgement:
    """Judge the lock of a known holder; `pod`: the holder as it is now, None if there is none."""
    if pod is None:
        return Judgement("Dangling")
    why_dead = _why_dead(lock, pod, node)
    if why_dead:
        return Judgement(why_dead)
    if not pod.spec.node_name:
        # Somebody is about to bind it, or has died before: HAMi's own rule decides.
        return Judgement("Unbound", until_s=lock.since_s + expire_s)
    if pod.metadata.annotations.get(BIND_PHASE) in _FINAL_PHASES:
        return Judgement("Allocated", lasting_s=_SETTLING_S)
    if pod.status.phase == "Running":
        # Devices are allocated when the kubelet admits a pod, before any container starts.
        return Judgement("Running", lasting_s=_SETTLING_S)
    return Judgement("Allocating", is_live=True)


def left_behind(lock: NodeLock, pod: HolderPod | None, now_s: float, expire_s: float) -> str:
    """Return why the lock can be released although no pod waits for it; "" if it cannot.

    This is narrower than `judge`: a lock that is in nobody's way is left to a pod that may live.
    """
    if pod is None:
        return "Dangling"
    if pod.status.phase in ENDED_POD_PHASES:
        return "Ended"
    # Clocks may be so far apart that a pod seems to be newer than its own lock.
    is_expired = now_s > lock.since_s + expire_s
    return "Recreated" if is_expired and _is_newer(pod, lock) else ""


def _why_dead(lock: NodeLock, pod: HolderPod, node: str) -> str:
    if pod.status.phase in ENDED_POD_PHASES:
        return "Ended"
    if _is_newer(pod, lock):
        return "Recreated"
    if pod.spec.node_name not in ("", node):
        return "BoundElsewhere"
    return ""


def _is_newer(pod: HolderPod, lock: NodeLock) -> bool:
    """Return whether the pod was created after the lock: it is a successor of the holder."""
    created_s = seconds(pod.metadata.creation_timestamp)
    return created_s is not None and created_s > lock.since_s + _CLOCKS_APART_S
