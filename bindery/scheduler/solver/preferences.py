"""Which of several gangs is evicted first, where queues and plugins make no difference. Pure.

The configuration chooses one of four preferences. Each is a number: the larger, the earlier.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bindery.api.configuration import VictimPreference


@dataclass(frozen=True, slots=True)
class PodCost:
    """What the eviction of a pod costs."""

    share: float
    """The largest part of the cluster that the pod holds of any resource."""
    started_at: float
    """Time of its binding: seconds since the epoch."""
    checkpoint_at: float
    """Time of the last checkpoint of its work, or 0."""


def preference(kind: VictimPreference, pods: Sequence[PodCost], now: float) -> float:
    """Return how gladly `pods` are evicted together. `now`: seconds since the epoch."""
    return _PREFERENCES[kind](pods, now)


def _newest(pods: Sequence[PodCost], now: float) -> float:  # noqa: ARG001
    return 0.0  # the order of jobs ends in their creation


def _youngest(pods: Sequence[PodCost], now: float) -> float:  # noqa: ARG001
    return min((pod.started_at for pod in pods), default=0.0)


def _cheapest(pods: Sequence[PodCost], now: float) -> float:  # noqa: ARG001
    return -sum(pod.share for pod in pods)


def _least_work_lost(pods: Sequence[PodCost], now: float) -> float:
    return -sum(
        pod.share * max(0.0, now - max(pod.started_at, min(pod.checkpoint_at, now))) for pod in pods
    )


_PREFERENCES: Final[Mapping[VictimPreference, Callable[[Sequence[PodCost], float], float]]] = {
    VictimPreference.NEWEST: _newest,
    VictimPreference.YOUNGEST: _youngest,
    VictimPreference.CHEAPEST: _cheapest,
    VictimPreference.LEAST_WORK_LOST: _least_work_lost,
}
