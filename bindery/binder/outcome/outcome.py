"""Outcomes of pods and of whole transactions, as frozen data.

Written by `run.transaction`; read by `run.run` to choose the next step, by `status` for the
object's status, and by `api_server.reports` for events and metrics.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from bindery.kube.objects.bindrequests import PodBinding


class BoundReason(StrEnum):
    """How many pods of a Statement were bound."""

    BOUND = "Bound"
    PARTLY_BOUND = "PartlyBound"
    """Some pods that may fail independently were not bound."""


class WaitReason(StrEnum):
    """The reason why a Statement has no outcome yet."""

    WAITS_FOR_PARTS = "WaitsForParts"
    """Not all parts of the Statement have been seen."""
    WAITS_FOR_REQUEST = "WaitsForRequest"
    """Waits for another request: its prerequisite, or one that holds the same pods."""
    PREPARING = "Preparing"
    """A plugin prepares pods, or waits for their turn."""
    WAITS_FOR_TURN = "WaitsForTurn"
    """Waits for the API server, or for a place among the concurrent calls."""


@dataclass(frozen=True)
class Wait:
    """The reason and details of a wait, for a Statement without an outcome."""

    reason: WaitReason
    message: str
    is_begun: bool = False
    """Whether a pod is bound or may be bound."""

    @property
    def is_for_a_turn(self) -> bool:
        """Whether only capacity is missing."""
        return self.reason is WaitReason.WAITS_FOR_TURN


@dataclass(frozen=True)
class PodFailure:
    """The reason why a pod could not proceed in an attempt."""

    reason: str
    message: str
    permanent: bool
    """Whether another attempt cannot help."""


@dataclass(frozen=True)
class PodOutcome:
    """The state of a pod after an attempt: bound, or the failure."""

    binding: PodBinding
    bound: bool
    failure: PodFailure | None = None


class Verdict(StrEnum):
    """The caller's next step for the transaction."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    RETRY = "Retry"


@dataclass(frozen=True)
class Outcome:
    """The end of one attempt."""

    verdict: Verdict
    reason: str
    message: str
    pods: Mapping[str, PodOutcome]
    """Pod UID -> state; contains all pods of the Statement."""
    begun: bool
    """Whether a pod is bound or may be bound: then the gang cannot be rolled back."""

    @property
    def bound_count(self) -> int:
        """The number of bound pods."""
        return sum(pod.bound for pod in self.pods.values())
