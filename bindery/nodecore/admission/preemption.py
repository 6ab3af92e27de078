"""Which pods make room for a critical pod: as few as possible, of the lowest QoS classes first."""

from collections.abc import Mapping, Sequence

from bindery.nodecore.admission.facts import PODS, Candidate
from bindery.nodecore.errors import NodeCoreError
from bindery.nodecore.pods import CPU, MEMORY, QosClass, requests_with_overhead

Missing = Mapping[str, int]
"""Resource -> how much of it is missing."""


class NoVictimsError(NodeCoreError):
    """All pods together would not make enough room."""


def victims(preemptor: Candidate, pods: Sequence[Candidate], missing: Missing) -> list[Candidate]:
    """Return the pods to stop so that `preemptor` gets what is missing.

    Guaranteed pods are chosen first, as if all others were gone, then Burstable and BestEffort
    ones; so the higher classes lose the fewest.

    Raises:
        NoVictimsError: all that may be stopped are not enough.
    """
    by_class: dict[QosClass, list[Candidate]] = {one: [] for one in QosClass}
    for pod in pods:
        if may_preempt(preemptor, pod):
            by_class[pod.pod.qos].append(pod)
    best_effort = by_class[QosClass.BEST_EFFORT]
    burstable = by_class[QosClass.BURSTABLE]
    guaranteed = by_class[QosClass.GUARANTEED]
    unmet = left_over(missing, [*best_effort, *burstable, *guaranteed])
    if unmet:
        raise NoVictimsError(f"no set of running pods found to reclaim resources: {_text(unmet)}")
    of_guaranteed = _closest(guaranteed, left_over(missing, [*best_effort, *burstable]))
    of_burstable = _closest(burstable, left_over(missing, [*best_effort, *of_guaranteed]))
    of_best_effort = _closest(best_effort, left_over(missing, [*of_burstable, *of_guaranteed]))
    return [*of_best_effort, *of_burstable, *of_guaranteed]


def may_preempt(preemptor: Candidate, pod: Candidate) -> bool:
    """Return whether `preemptor` may push `pod` out."""
    if preemptor.is_critical and not pod.is_critical:
        return True
    mine, theirs = preemptor.pod.priority, pod.pod.priority
    return mine is not None and theirs is not None and mine > theirs


def left_over(missing: Missing, pods: Sequence[Candidate]) -> dict[str, int]:
    """Return what would still be missing without `pods`."""
    freed = [_asked(pod) for pod in pods]
    left = {
        name: amount - sum(one.get(name, 0) for one in freed) for name, amount in missing.items()
    }
    return {name: amount for name, amount in left.items() if amount > 0}


def distance(missing: Missing, pod: Candidate) -> float:
    """Return how far the pod alone is from giving what is missing: a sum of squared parts."""
    asked = _asked(pod)
    parts = [(amount - asked.get(name, 0)) / amount for name, amount in missing.items()]
    return sum(part**2 for part in parts if part > 0)


def _closest(pods: Sequence[Candidate], missing: Missing) -> list[Candidate]:
    left = list(pods)
    chosen = []
    while missing:
        if not left:
            raise NoVictimsError(
                f"no set of running pods found to reclaim resources: {_text(missing)}"
            )
        best = 0
        for index in range(1, len(left)):
            mine, theirs = distance(missing, left[index]), distance(missing, left[best])
            is_smaller = _size(left[index]) <= _size(left[best])
            if mine < theirs or (mine == theirs and is_smaller):
                best = index
        missing = left_over(missing, [left[best]])
        chosen.append(left[best])
        left[best] = left[-1]  # the order of the rest decides between equals, as in the kubelet
        left.pop()
    return chosen


def _asked(pod: Candidate) -> dict[str, int]:
    return {**requests_with_overhead(pod.pod), PODS: 1}


def _size(pod: Candidate) -> tuple[int, int]:
    asked = _asked(pod)
    return asked.get(MEMORY, 0), asked.get(CPU, 0)


def _text(missing: Missing) -> str:
    return "[" + "".join(f"(res: {name}, q: {amount}), " for name, amount in missing.items()) + "]"
