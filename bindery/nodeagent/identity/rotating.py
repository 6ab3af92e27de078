"""The loop of one certificate: requests it when it is due, and waits until it is signed.

What is requested and when is decided by `nodecore.certificates.rotation`.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import structlog

from bindery.kube.access.pem import key_pem
from bindery.kube.errors import (
    ApiError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    OutcomeUnknownError,
    ServerError,
    UnreachableError,
)
from bindery.nodeagent.identity import metrics
from bindery.nodeagent.identity.errors import RequestEndedError, RequestOutcome
from bindery.nodeagent.identity.keys import RequestKey
from bindery.nodeagent.identity.signing import (
    CertificateKind,
    SigningApi,
    WantedCertificate,
    certificate_of,
)
from bindery.nodecore.certificates.requests import CertificateError, Template, leaf_of
from bindery.nodecore.certificates.rotation import (
    CERTIFICATE_TIMEOUT_S,
    TEMPLATE_PERIOD_S,
    CertificateManager,
    ServerAnswer,
)
from bindery.nodecore.certificates.store import Pair

_LONGEST_LOOK_S: Final = 30.0
_LOOK_SHARE: Final = 0.1
"""The pause between two looks at a request, of the time that it has waited."""

log = structlog.get_logger(__name__)


class Times(NamedTuple):
    """The clock, in seconds since 1970, and what waits for some seconds."""

    now_s: Callable[[], float]
    pause: Callable[[float], Awaitable[None]]


class CertificateLoop:
    """Keeps one certificate of the node valid.

    `on_signed` is called with each new pair. `complain` is called with a sentence about a request
    that was refused.
    """

    def __init__(
        self,
        kind: CertificateKind,
        manager: CertificateManager,
        key: RequestKey,
        api: SigningApi,
        times: Times,
        on_signed: Callable[[Pair], Awaitable[None]],
        complain: Callable[[str], None],
    ) -> None:
        self._kind, self._manager, self._key, self._api = kind, manager, key, api
        self._times, self._on_signed, self._complain = times, on_signed, complain
        self._show(manager.current())

    async def run(self) -> None:
        """Keep the certificate valid; does not return."""
        while True:
            await self.step()
            await self._times.pause(TEMPLATE_PERIOD_S)

    async def step(self) -> None:
        """Request a certificate if one is due, and wait until the request has ended."""
        wanted = self._manager.to_request()
        if wanted is None:
            return
        answer = ServerAnswer.OK
        try:
            pair = await self._requested(wanted)
        except RequestEndedError as error:
            outcome, problem = error.outcome, str(error)
        except KubeError as error:
            outcome, problem, answer = RequestOutcome.UNSENT, str(error), _answer_of(error)
        except (CertificateError, OSError) as error:
            outcome, problem = RequestOutcome.UNUSABLE, str(error)
        else:
            metrics.REQUESTS.labels(self._kind.name, RequestOutcome.SIGNED.value).inc()
            log.info("certificate signed", certificate=self._kind.name)
            self._show(pair)
            await self._on_signed(pair)
            return
        self._manager.failed(answer)
        metrics.REQUESTS.labels(self._kind.name, outcome.value).inc()
        log.warning("no certificate", certificate=self._kind.name, outcome=outcome.value,
                    problem=problem)  # fmt: skip
        if outcome is RequestOutcome.REFUSED:
            self._complain(f"the request for the {self._kind.name} certificate: {problem}")

    async def _requested(self, template: Template) -> Pair:
        wanted = WantedCertificate(self._kind, self._key.key(self._manager.current()), template)
        self._manager.requested(template)
        try:
            await self._api.send(wanted)
            certificate = await self._answer(wanted)
        except RequestEndedError as error:
            if error.outcome is not RequestOutcome.UNANSWERED:
                self._key.forget()
            raise
        pair = self._manager.signed(certificate, key_pem(wanted.key))
        self._key.forget()
        return pair

    async def _answer(self, wanted: WantedCertificate) -> bytes:
        """Wait for the certificate, looking ever more rarely."""
        started_s = looked_s = self._times.now_s()
        while (waited_s := self._times.now_s() - started_s) <= CERTIFICATE_TIMEOUT_S:
            if self._manager.is_outdated():
                raise RequestEndedError(RequestOutcome.OUTDATED, "the node's addresses changed")
            pause_s = min(_LONGEST_LOOK_S, waited_s * _LOOK_SHARE)
            if self._times.now_s() - looked_s >= pause_s:
                looked_s = self._times.now_s()
                certificate = await self._look(wanted.name)
                if certificate is not None:
                    self._check(certificate, wanted.template)
                    return certificate
            await self._times.pause(TEMPLATE_PERIOD_S)
        text = f"{wanted.name} was not signed in {CERTIFICATE_TIMEOUT_S:.0f} s"
        raise RequestEndedError(RequestOutcome.UNANSWERED, text)

    async def _look(self, name: str) -> bytes | None:
        try:
            return certificate_of(await self._api.found(name))
        except NotFoundError as error:
            raise RequestEndedError(RequestOutcome.REFUSED, f"{name} was removed") from error
        except ForbiddenError:
            raise
        except KubeError as error:
            log.info("request not read", name=name, error=str(error))
            return None

    def _check(self, certificate: bytes, wanted: Template) -> None:
        try:
            leaf = leaf_of(certificate)
        except CertificateError as error:
            raise RequestEndedError(RequestOutcome.UNUSABLE, str(error)) from error
        if leaf.is_expired(self._times.now_s()):
            raise RequestEndedError(RequestOutcome.UNUSABLE, "the certificate has expired")
        if not leaf.satisfies(wanted):
            text = "the signer has left out names of the node"
            raise RequestEndedError(RequestOutcome.UNUSABLE, text)

    def _show(self, pair: Pair | None) -> None:
        until_s = 0.0 if pair is None else pair.leaf.not_after_s
        metrics.EXPIRATION.labels(self._kind.name).set(until_s)


def _answer_of(error: KubeError) -> ServerAnswer:
    if isinstance(error, ForbiddenError):
        is_unknown = error.status == 401
        return ServerAnswer.UNAUTHORIZED if is_unknown else ServerAnswer.FORBIDDEN
    if isinstance(error, NotFoundError):
        return ServerAnswer.NOT_FOUND
    if isinstance(error, UnreachableError | OutcomeUnknownError):
        return ServerAnswer.UNREACHABLE
    is_own_answer = isinstance(error, ApiError) and not isinstance(error, ServerError)
    return ServerAnswer.OK if is_own_answer else ServerAnswer.UNEXPECTED
