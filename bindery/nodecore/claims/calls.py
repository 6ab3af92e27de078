"""The calls to DRA drivers that a plan leaves open, and what counts as an answer.

No manager calls a driver: one that does not answer holds only the pod that waits for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bindery.nodecore.checkpoints.claims import ClaimDevice, PreparedClaim
from bindery.nodecore.claims.facts import ClaimError

CALL_TIMEOUT_S: Final = 45.0

PREPARE: Final = "NodePrepareResources"
UNPREPARE: Final = "NodeUnprepareResources"

Key = tuple[str, str]
"""Namespace and name of a ResourceClaim."""


@dataclass(frozen=True)
class Prepared:
    """A driver's answer for one claim."""

    devices: tuple[ClaimDevice, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class DriverCall:
    """A call to a driver, with all claims of a pod that have devices of it.

    Attributes:
        method: `PREPARE` or `UNPREPARE`.
    """

    method: str
    driver: str
    claims: tuple[PreparedClaim, ...]

    def failed(self, reason: object) -> ClaimError:
        """Return the error of a call that has failed as a whole."""
        return ClaimError(f"{self.method}: {reason}")

    def check(self, errors: Mapping[str, str]) -> None:
        """Raise ClaimError unless each claim has an answer without an error.

        `errors`: UID of a claim -> the driver's error, "" for none.
        """
        for uid, error in errors.items():
            self.check_one(uid, error)
        missing = len(self.claims) - len(errors)
        if missing:
            raise ClaimError(f"{self.method} skipped {missing} ResourceClaims")

    def check_one(self, uid: str, error: str) -> PreparedClaim:
        """Return the claim of an answer; raises ClaimError if it is unknown or has an error."""
        claim = next((one for one in self.claims if one.uid == uid), None)
        if claim is None:
            raise ClaimError(f"{self.method} returned result for unknown claim UID {uid}")
        if error:
            raise ClaimError(f"{self.method} failed for ResourceClaim {claim.name}: {error}")
        return claim


@dataclass(frozen=True)
class ClaimPlan:
    """The calls for a pod, in their order; the first failure ends the plan.

    Attributes:
        method: `PREPARE` or `UNPREPARE`.
        keys: the claims that the calls prepare, or that end with the calls.
    """

    method: str
    pod_uid: str
    keys: tuple[Key, ...]
    calls: tuple[DriverCall, ...]


def calls(method: str, batches: Mapping[str, list[PreparedClaim]]) -> tuple[DriverCall, ...]:
    """Return one call for each driver; `batches`: driver -> claims."""
    return tuple(DriverCall(method, name, tuple(of)) for name, of in sorted(batches.items()))
