"""Outcomes of pods and of whole transactions.

Written by `run.transaction`, read by `run.run` (what next), `status` (what the object says) and
`api_server.reports` (events and metrics). Plain frozen data: nothing here does anything.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from bindery.kube.objects.bindrequests import PodBinding


class BoundReason(StrEnum):
    """How much of a Statement was bound."""

    BOUND = "Bound"
    PARTLY_BOUND = "PartlyBound"
    """Some pods that may succeed or fail alone did not bind."""


class WaitReason(StrEnum):
    """Why a Statement has no outcome yet."""

    WAITS_FOR_PARTS = "WaitsForParts"
    """Not all parts of the Statement have come."""
    WAITS_FOR_REQUEST = "WaitsForRequest"
    """Another request comes first: it builds on that one, or that one has its pods."""
    PREPARING = "Preparing"
    """A plugin prepares pods, or waits for their turn."""
    WAITS_FOR_TURN = "WaitsForTurn"
    """The API server or a place among the calls under way is waited for."""


@dataclass(frozen=True)
class Wait:
    """What a Statement without an outcome waits for."""

    reason: WaitReason
    message: str
    is_begun: bool = False
    """Whether a pod is bound or may be."""

    @property
    def is_for_a_turn(self) -> bool:
        """Whether nothing is missing but capacity."""
        return self.reason is WaitReason.WAITS_FOR_TURN


@dataclass(frozen=True)
class PodFailure:
    """Why a pod did not get on in an attempt."""

    reason: str
    message: str
    permanent: bool
    """Whether trying again cannot help."""


@dataclass(frozen=True)
class PodOutcome:
    """The state of a pod after an attempt: bound, or the failure."""

    binding: PodBinding
    bound: bool
    failure: PodFailure | None = None


class Verdict(StrEnum):
    """What the caller does next with the transaction."""

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
    """Pod UID -> where it stands; all pods of the Statement."""
    begun: bool
    """Whether a pod is bound or may be: then there is no way back for the gang."""

    @property
    def bound_count(self) -> int:
        """How many pods are bound."""
        return sum(pod.bound for pod in self.pods.values())
