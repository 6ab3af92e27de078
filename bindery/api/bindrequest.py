"""The words of BindRequests (`br`), which `kube.objects.bindrequests` declares."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from bindery.api.states import MALFORMED, Phase

__all__ = ["Phase"]

_NAMES_SHOWN: Final = 2
"""More would make the column of `kubectl get` wider than a terminal."""


class ReceivedResourceType(StrEnum):
    """The form in which a pod gets its GPUs."""

    REGULAR = "Regular"
    FRACTION = "Fraction"
    MIG_INSTANCE = "MigInstance"


class BindFailureReason(StrEnum):
    """Why the binder has not bound a pod. Binder plugins add words of their own."""

    POD_GONE = "PodGone"
    """The pod does not exist, is being deleted, or has ended."""
    POD_REPLACED = "PodReplaced"
    """Another pod has the name now."""
    NODE_GONE = "NodeGone"
    BOUND_ELSEWHERE = "BoundElsewhere"
    STALE_SCHEDULER = "StaleScheduler"
    """A newer leader of the scheduler has planned since."""
    HELD_BY_OTHER_REQUEST = "HeldByOtherRequest"
    """Another request that is being carried out has the pod."""
    GANG_ABORTED = "GangAborted"
    """Nothing is wrong with this pod, but too few of the others can be bound."""
    CHECK_FAILED = "CheckFailed"
    """The API server could not be asked about the pod or its node."""
    PREDECESSOR_FAILED = "PredecessorFailed"
    """The prerequisite Statement has failed; for extra pods, the Statement of their gang."""
    PREDECESSOR_GONE = "PredecessorGone"
    """The prerequisite Statement is deleted, and its outcome is unknown."""
    PLUGIN_FAILED = "PluginFailed"
    BIND_FAILED = "BindFailed"
    UNCERTAIN = "Uncertain"
    """A binding was sent and not answered; the binder reads its result before further work."""
    INTERNAL_ERROR = "InternalError"
    MALFORMED = MALFORMED
    WITHDRAWN = "Withdrawn"
    """The scheduler has withdrawn the Statement."""
    PART_GONE = "PartGone"
    """A part of the Statement was deleted or changed during the binding."""

    @property
    def blames_node(self) -> bool:
        """Whether the node caused the failure; the job then avoids it for a while."""
        return self not in _FAULTS_OF_OTHERS


_FAULTS_OF_OTHERS: Final = frozenset(
    {
        BindFailureReason.BOUND_ELSEWHERE,
        BindFailureReason.GANG_ABORTED,
        BindFailureReason.HELD_BY_OTHER_REQUEST,
        BindFailureReason.MALFORMED,
        BindFailureReason.PART_GONE,
        BindFailureReason.POD_GONE,
        BindFailureReason.POD_REPLACED,
        BindFailureReason.PREDECESSOR_FAILED,
        BindFailureReason.PREDECESSOR_GONE,
        BindFailureReason.STALE_SCHEDULER,
        BindFailureReason.WITHDRAWN,
    }
)


def few_names(names: Iterable[str]) -> str:
    """Return the first of the different `names`, and how many more there are: `a,b +3`."""
    distinct = list(dict.fromkeys(names))
    text = ",".join(distinct[:_NAMES_SHOWN])
    hidden = len(distinct) - _NAMES_SHOWN
    return f"{text} +{hidden}" if hidden > 0 else text
