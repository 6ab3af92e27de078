"""Reports outages of the API server with two log lines each, however many calls fail.

`http.transport` reports each answer and each failure. A caller that retries logs its failures with
`log_failure`, which omits failures of an outage. An API server that has just started answers before
it has read its roles and tokens, so its refusals belong to the outage.
"""

from collections.abc import Callable
from typing import Any, Final

import structlog
from structlog.typing import FilteringBoundLogger

from bindery.kube.errors import ApiError, KubeError, OutcomeUnknownError, UnreachableError

_PATIENCE_S: Final = 2.0
"""Shorter outages are not reported: for example, a load balancer that moves connections."""
_SETTLING_S: Final = 10.0
"""Seconds after its start during which refusals of a server are not reported."""
_REFUSALS: Final = (401, 403, 429)

_log = structlog.get_logger()


class Outages:
    """Whether one API server answers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns seconds."""
        self._clock = clock
        self._since_s: float | None = None  # the first failure since the last good answer
        self._answers_since_s: float | None = None  # the first answer of any kind since then
        self._settled_at_s = 0.0
        self._failures = 0
        self._is_reported = False

    def answered(self, status: int) -> None:
        """Record an answer with the HTTP status `status`."""
        if self._since_s is None:
            return
        now_s = self._clock()
        if self._answers_since_s is None:
            self._answers_since_s = now_s
        is_good = status < 500 and status not in _REFUSALS
        if is_good or now_s - self._answers_since_s >= _SETTLING_S:
            self._end(now_s)

    def failed(self, error: KubeError) -> None:
        """Record a failed call, and set `error.is_of_outage`."""
        now_s = self._clock()
        if isinstance(error, ApiError):
            is_refusal = error.status >= 500 or error.status in _REFUSALS
            error.is_of_outage = is_refusal and (
                self._since_s is not None or now_s < self._settled_at_s
            )
            return
        if not isinstance(error, (UnreachableError, OutcomeUnknownError)):
            return
        self._answers_since_s = None
        if self._since_s is None:
            self._since_s, self._failures = now_s, 0
        self._failures += 1
        if not self._is_reported and now_s - self._since_s >= _PATIENCE_S:
            self._is_reported = True
            _log.warning("the API server does not answer", error=str(error))
        error.is_of_outage = self._is_reported

    def _end(self, now_s: float) -> None:
        assert self._since_s is not None, "only an outage ends"
        if self._is_reported:
            after_s = round(now_s - self._since_s, 1)
            _log.info("the API server answers again", after_s=after_s, failures=self._failures)
        self._since_s, self._answers_since_s, self._is_reported = None, None, False
        self._settled_at_s = now_s + _SETTLING_S


def log_failure(log: FilteringBoundLogger, event: str, error: KubeError, **fields: Any) -> None:
    """Log a failed call that will be repeated: a warning, unless an outage is the cause."""
    write = log.debug if error.is_of_outage else log.warning
    write(event, **fields, error=str(error))
