"""Finds what a killed device plugin, kubelet or binder has left half done on this node. Pure.

Run at the start and after each change of the node or of its pods. Each decision follows from the
API server's state alone, so it is the same after any crash.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bindery.api.hami import lock as locks
from bindery.api.hami.errors import HamiFormatError
from bindery.api.hami.names import BindPhase
from bindery.nodeagent.devices.inventory import PodKey
from bindery.nodeagent.shares.pods import SharingPod, left_to_allocate, other_vendors_wait


@dataclass(frozen=True)
class PhaseEnd:
    """A pod whose phase no plugin will write any more, and the phase for it."""

    pod: SharingPod
    phase: BindPhase


@dataclass(frozen=True)
class LockEnd:
    """A lock that its holder will not release."""

    value: str
    holder: PodKey
    is_gone: bool = False
    """Whether the holder is not among the pods of the node: ask the API server first."""


def unfinished_phases(pods: Mapping[PodKey, SharingPod], node: str) -> list[PhaseEnd]:
    """Return the pods of the node that have ended or started, and whose phase is not final."""
    found = []
    for pod in pods.values():
        if pod.bind_phase != BindPhase.ALLOCATING or pod.spec.node_name != node:
            continue
        if not any(pod.counts):
            continue  # it has no shares of this plugin's
        if pod.has_ended:
            found.append(PhaseEnd(pod, BindPhase.FAILED))
        elif pod.status.phase == "Running" and not _waits(pod):
            found.append(PhaseEnd(pod, BindPhase.SUCCESS))
    return found


def abandoned_lock(
    pods: Mapping[PodKey, SharingPod], value: str | None, node: str
) -> LockEnd | None:
    """Return the lock with `value` if its holder no longer needs it; else None.

    A holder that is not bound to this node is its binder's, and stays. So does a lock without the
    name of a pod.
    """
    try:
        lock = locks.decode(value) if value is not None else None
    except HamiFormatError:
        return None  # the binder takes it after its expiry
    if value is None or lock is None or lock.is_anonymous:
        return None
    holder = (lock.namespace, lock.name)
    pod = pods.get(holder)
    if pod is None:
        return LockEnd(value, holder, is_gone=True)
    if pod.spec.node_name != node:
        return None
    is_served = pod.bind_phase == BindPhase.SUCCESS and not _waits(pod)
    is_over = pod.has_ended or pod.bind_phase == BindPhase.FAILED
    return LockEnd(value, holder) if is_served or is_over else None


def _waits(pod: SharingPod) -> bool:
    try:
        return bool(left_to_allocate(pod)) or other_vendors_wait(pod)
    except HamiFormatError:
        return False  # nothing will ever be allocated from it
