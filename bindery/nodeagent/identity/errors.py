"""What can fail about the identity of a node."""

from enum import StrEnum


class IdentityError(Exception):
    """The node cannot have an identity as it is configured; the agent must not start."""


class RequestOutcome(StrEnum):
    """How a request for a certificate ended."""

    SIGNED = "signed"
    UNSENT = "unsent"
    """The API server did not accept it, or could not be asked."""
    REFUSED = "refused"
    """It was denied, its signer failed, or it was removed."""
    UNUSABLE = "unusable"
    """The certificate has expired, or is not what was asked for."""
    UNANSWERED = "unanswered"
    """It was not signed in time; the next request finds it again."""
    OUTDATED = "outdated"
    """The node needs another certificate meanwhile."""


class RequestEndedError(Exception):
    """A request has ended without a certificate."""

    def __init__(self, outcome: RequestOutcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome
