"""Decides whether and when to retry a failed call. Pure.

`client` calls `RetryPolicy.delay_s` after each failure, `watches.reflector` uses `backoff_s` for
reconnections. Remaining time and random numbers are passed in. Invariant: a request with an unknown
outcome is sent again only if a repetition has no further effect.
"""

from dataclasses import dataclass
from enum import IntEnum

from bindery.kube.errors import (
    KubeError,
    OutcomeUnknownError,
    ServerError,
    ThrottledError,
    UnreachableError,
)


class Repeat(IntEnum):
    """The failures after which a request may be sent again; each level has the levels before."""

    UNSENT = 0
    """Only if the server was not reached. A 429 is an answer, for example for an eviction that a
    disruption budget forbids."""
    REFUSED = 1
    """Only if the server certainly did nothing: not reached, 429, 503."""
    ANSWERED = 2
    """Also after any other 5xx: the server detects a repetition (create with a name, binding with a
    uid)."""
    ALWAYS = 3
    """Also without an answer: the request is idempotent."""


def backoff_s(attempt: int, base_s: float, cap_s: float, draw: float) -> float:
    """Exponential backoff before attempt number `attempt` + 1, in seconds.

    `attempt` counts failures from 0; `draw` is uniform in [0, 1). Half of the delay is random
    ("equal jitter"), so that many clients spread and none repeats immediately.
    """
    full_s = min(cap_s, base_s * 2.0 ** min(attempt, 32))
    return full_s * (0.5 + 0.5 * draw)


@dataclass(frozen=True)
class RetryPolicy:
    """The delays between attempts of one call."""

    base_s: float = 0.05
    cap_s: float = 5.0

    def attempt_s(self, repeat: Repeat, remaining_s: float) -> float:
        """Return the time limit of one attempt, if its call has `remaining_s` seconds left.

        A repeatable request leaves time for a second attempt, because the first may use a
        connection that was lost without notice.
        """
        return remaining_s / 2 if repeat is Repeat.ALWAYS else remaining_s

    def conflict_delay_s(self, attempt: int, draw: float) -> float:
        """Return the seconds to wait before reading an object again after a conflict."""
        return backoff_s(attempt, 0.005, 0.5, draw)

    def delay_s(
        self, failure: KubeError, *, attempt: int, repeat: Repeat, remaining_s: float, draw: float
    ) -> float | None:
        """Return the seconds to wait before sending again, or None to give up.

        `attempt` counts failures from 0; `remaining_s` is the remaining time of the call; `draw` is
        uniform in [0, 1). A server's Retry-After is a lower bound.
        """
        if not _may_repeat(failure, repeat):
            return None
        wait_s = backoff_s(attempt, self.base_s, self.cap_s, draw)
        if isinstance(failure, (ThrottledError, ServerError)) and failure.retry_after_s is not None:
            wait_s += failure.retry_after_s
        return wait_s if wait_s < remaining_s else None


def _may_repeat(failure: KubeError, repeat: Repeat) -> bool:
    if isinstance(failure, UnreachableError):
        return True
    if repeat is Repeat.UNSENT:
        return False
    if isinstance(failure, ThrottledError):
        return True
    if isinstance(failure, ServerError):
        return failure.status == 503 or repeat >= Repeat.ANSWERED
    return isinstance(failure, OutcomeUnknownError) and repeat >= Repeat.ALWAYS
