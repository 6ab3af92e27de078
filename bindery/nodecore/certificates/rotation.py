"""When a certificate is rotated, how long failures wait, and when connections are closed."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bindery.nodecore.certificates.requests import Leaf, Template
from bindery.nodecore.certificates.store import CertificateStore, NoPairError, Pair

TEMPLATE_PERIOD_S: Final = 1.0
CERTIFICATE_TIMEOUT_S: Final = 900.0
"""How long a request waits to be signed."""
TRANSPORT_PERIOD_S: Final = 10.0
FIRST_TRANSPORT_PERIOD_S: Final = 1.0

_JITTER: Final = 0.2
_TAKEN_OFF: Final = 0.3
_FIRST_WAIT_S: Final = 2.0
_WAIT_JITTER: Final = 0.1
_BACKOFF_STEPS: Final = 5
_LONG_WAIT_S: Final = 32.0


class ServerAnswer(StrEnum):
    """How the API server answered a request for a certificate."""

    OK = "ok"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not found"
    FORBIDDEN = "forbidden"
    UNEXPECTED = "unexpected"
    """An answer that comes from a proxy rather than from the server."""
    UNREACHABLE = "unreachable"


class TransportAction(StrEnum):
    """What to do about open connections."""

    NONE = "none"
    CLOSE_ALL = "close all"
    EXIT = "exit"


def deadline_s(leaf: Leaf, jitter: float) -> float:
    """Return when to rotate: after 70% to 90% of the certificate's life; `jitter`: from 0 to 1."""
    total_s = leaf.not_after_s - leaf.not_before_s
    return leaf.not_before_s + total_s * (1 + _JITTER * jitter) - total_s * _TAKEN_OFF


def wait_s(failures: int, jitter: float) -> float:
    """Return how long to wait after failures in a row: 2, 4, 8, 16 and then 32 seconds.

    `jitter`, from 0 to 1, makes the first waits up to 10% longer.
    """
    if failures == 0:
        return 0.0
    if failures >= _BACKOFF_STEPS:
        return _LONG_WAIT_S
    return float(_FIRST_WAIT_S * 2 ** (failures - 1) * (1 + _WAIT_JITTER * jitter))


class CertificateManager:
    """The node's certificate of one kind. The caller sends the requests.

    Args:
        store: where certificates are kept.
        template: returns what the certificate is for, None while that is not known.
        clock: returns seconds since 1970.
        random: returns a number from 0 to 1.
        bootstrap: a pair to use until the first request is signed; it is replaced at once.

    Raises:
        CertificateError: the stored certificate cannot be read.
    """

    def __init__(
        self,
        store: CertificateStore,
        template: Callable[[], Template | None],
        clock: Callable[[], float],
        random: Callable[[], float],
        bootstrap: tuple[bytes, bytes] | None = None,
    ) -> None:
        self._store = store
        self._template = template
        self._clock = clock
        self._random = random
        self._last_request: Template | None = None
        self._failures = 0
        self.is_server_healthy = False
        self._pair: Pair | None = None
        self._is_forced = False
        try:
            pair = store.current()
        except NoPairError:
            pair = None
        if pair is not None and not pair.leaf.is_expired(clock()):
            self._pair = pair
        else:
            self._is_forced = True
            self._pair = store.update(*bootstrap) if bootstrap is not None else None
        self._deadline_s = self._next_deadline_s()

    def current(self) -> Pair | None:
        """Return the certificate, None without one and when it has expired."""
        if self._pair is None or self._pair.leaf.is_expired(self._clock()):
            return None
        return self._pair

    def deadline_s(self) -> float:
        """Return the time of the next request for a certificate; a past time means now."""
        return self._deadline_s

    def to_request(self) -> Template | None:
        """Return the certificate to request now, or None.

        The caller sends one request at a time, and reports how each ended.
        """
        wanted = self._template()
        if wanted is None:
            return None
        is_due = self._clock() >= self._deadline_s
        has_changed = not self._satisfies(wanted) and wanted != self._last_request
        return wanted if is_due or (has_changed and self._failures == 0) else None

    def is_outdated(self) -> bool:
        """Return whether the open request is for something else than is wanted now."""
        wanted = self._template()
        return (
            self._last_request is not None
            and wanted is not None
            and wanted != self._last_request
            and not self._satisfies(wanted)
        )

    def requested(self, template: Template) -> None:
        """Record that a request has been sent."""
        self._last_request = template
        self.is_server_healthy = True

    def failed(self, answer: ServerAnswer = ServerAnswer.OK) -> None:
        """Record that a request was not sent or not signed; the next one waits."""
        if answer != ServerAnswer.OK:
            healthy = (ServerAnswer.UNAUTHORIZED, ServerAnswer.NOT_FOUND, ServerAnswer.FORBIDDEN)
            self.is_server_healthy = answer in healthy
        self._failures += 1
        self._deadline_s = self._clock() + wait_s(self._failures, self._random())

    def signed(self, certificate: bytes, key: bytes) -> Pair:
        """Keep the new certificate; raises CertificateError if it cannot be read or kept."""
        self._pair = self._store.update(certificate, key)
        self._failures = 0
        self._is_forced = False
        self.is_server_healthy = True
        self._deadline_s = self._next_deadline_s()
        return self._pair

    def _satisfies(self, wanted: Template | None) -> bool:
        return self._pair is not None and (wanted is None or self._pair.leaf.satisfies(wanted))

    def _next_deadline_s(self) -> float:
        if self._pair is None or self._is_forced or not self._satisfies(self._template()):
            return self._clock()
        return deadline_s(self._pair.leaf, self._random())


@dataclass
class ConnectionWatcher:
    """Closes connections once the client certificate has changed.

    Attributes:
        pair: the certificate of the last check.
        seen_at_s: when there was a certificate last.
        exit_after_s: how long the process lives without a certificate, 0 for ever.
    """

    pair: Pair | None
    seen_at_s: float
    exit_after_s: float = 0.0

    @property
    def period_s(self) -> float:
        """How long to wait for the next check; shorter until the first certificate."""
        return FIRST_TRANSPORT_PERIOD_S if self.pair is None else TRANSPORT_PERIOD_S

    def check(
        self, current: Pair | None, now_s: float, *, is_server_healthy: bool
    ) -> TransportAction:
        """Return what to do about connections, and remember the certificate.

        Without a usable certificate the process exits if the server can be reached: a start gets
        a new one.
        """
        if self.exit_after_s > 0:
            if current is None:
                is_lost = now_s > self.seen_at_s + self.exit_after_s
            else:
                is_lost = current.leaf.is_expired(now_s)
                self.seen_at_s = now_s
            if is_lost and is_server_healthy:
                return TransportAction.EXIT
        if current is None or current == self.pair:
            return TransportAction.NONE
        self.pair = current
        return TransportAction.CLOSE_ALL
