"""Finds pods that request not to be evicted, by annotations of three projects or local data. Pure.

Karpenter's annotation may have a duration from the start of the pod, such as `4h` (its
IsDoNotDisruptActive, August 2026). Values other than a duration and `true` are ignored.

The rules for local data are those of cluster-autoscaler (1.33, `utils/drain`): a hostPath volume,
or an emptyDir volume that is not in memory, unless an annotation marks the volume as safe to lose.
"""

import math
from collections.abc import Iterable, Mapping
from enum import IntFlag
from typing import Final

import durationpy

from bindery.api.names import DO_NOT_DISRUPT_ANNOTATION

KARPENTER_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
SAFE_TO_EVICT_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_VOLUMES_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"


_STAYS: Final = frozenset({"false", "on-completion"})
"""Values of `SAFE_TO_EVICT_ANNOTATION` with which cluster-autoscaler evicts no pod."""
_LONGEST_DURATION: Final = 40


class Asks(IntFlag):
    """The reasons why a pod requests not to be evicted."""

    NOTHING = 0
    BY_ANNOTATION = 1
    LOCAL_DATA = 2


def asks(annotations: Mapping[str, str], local_volumes: Iterable[str]) -> Asks:
    """Return why a pod, with `local_volumes` that hold local data, requests not to be evicted."""
    found = Asks.NOTHING
    if _for_good(annotations) or _duration_s(annotations) is not None:
        found |= Asks.BY_ANNOTATION
    if annotations.get(SAFE_TO_EVICT_ANNOTATION) == "true":
        return found
    safe = {name.strip() for name in annotations.get(SAFE_VOLUMES_ANNOTATION, "").split(",")}
    if any(name not in safe for name in local_volumes):
        found |= Asks.LOCAL_DATA
    return found


def asks_until(annotations: Mapping[str, str], started: float | None) -> float:
    """Return the end of the annotations' effect in seconds since the epoch; may be infinite.

    `started`: when the kubelet accepted the pod, the beginning of a duration.
    """
    duration_s = _duration_s(annotations)
    if duration_s is None or started is None or _for_good(annotations):
        return math.inf
    return started + duration_s


def _for_good(annotations: Mapping[str, str]) -> bool:
    return (
        annotations.get(DO_NOT_DISRUPT_ANNOTATION) == "true"
        or annotations.get(KARPENTER_ANNOTATION) == "true"
        or annotations.get(SAFE_TO_EVICT_ANNOTATION) in _STAYS
    )


def _duration_s(annotations: Mapping[str, str]) -> float | None:
    """Return the duration of Karpenter's annotation; None without a positive one."""
    text = annotations.get(KARPENTER_ANNOTATION, "")
    if not text or len(text) > _LONGEST_DURATION:
        return None
    try:
        found = float(durationpy.from_str(text).total_seconds())
    except (durationpy.DurationError, ValueError, OverflowError):
        return None
    return found if found > 0 else None
