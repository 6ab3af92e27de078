"""Which pods ask to be left in place: by annotations of three projects, and by local data. Pure.

The rules for local data are those of cluster-autoscaler (1.33, `utils/drain`): a hostPath volume,
or an emptyDir volume that is not in memory, unless an annotation says that it is safe.
"""

from collections.abc import Iterable, Mapping
from enum import IntFlag
from typing import Final

from bindery.api.names import DO_NOT_DISRUPT_ANNOTATION

KARPENTER_ANNOTATION: Final = "karpenter.sh/do-not-disrupt"
SAFE_TO_EVICT_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_VOLUMES_ANNOTATION: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"


class Asks(IntFlag):
    """Why a pod asks to be left in place."""

    NOTHING = 0
    BY_ANNOTATION = 1
    LOCAL_DATA = 2


def asks(annotations: Mapping[str, str], local_volumes: Iterable[str]) -> Asks:
    """Return why a pod asks to be left in place. `local_volumes`: its volumes with local data."""
    found = Asks.NOTHING
    if (
        annotations.get(DO_NOT_DISRUPT_ANNOTATION) == "true"
        or annotations.get(KARPENTER_ANNOTATION) == "true"
        or annotations.get(SAFE_TO_EVICT_ANNOTATION) == "false"
    ):
        found |= Asks.BY_ANNOTATION
    if annotations.get(SAFE_TO_EVICT_ANNOTATION) == "true":
        return found
    safe = {name.strip() for name in annotations.get(SAFE_VOLUMES_ANNOTATION, "").split(",")}
    if any(name not in safe for name in local_volumes):
        found |= Asks.LOCAL_DATA
    return found
