"""The answer of an admission check."""

from dataclasses import dataclass
from typing import Final

from bindery.nodecore.errors import AllocationError

UNEXPECTED: Final = "UnexpectedAdmissionError"


@dataclass(frozen=True)
class Admission:
    """Whether a pod may run; if not, with the word and the sentence for its status."""

    admit: bool
    reason: str = ""
    message: str = ""


ADMITTED: Final = Admission(admit=True)


def refused(error: AllocationError) -> Admission:
    """Return the refusal for an error of a resource manager.

    An error without a reason of its own is reported as unexpected, as the kubelet does.
    """
    if error.reason != UNEXPECTED:
        return Admission(False, error.reason, str(error))
    return Admission(False, UNEXPECTED, f"Allocate failed due to {error}, which is unexpected")
