"""Errors of calls to the API server, by the caller's options.

Raised by `client` and everything above it; aiohttp's own errors never leave the
package. The line that matters most is drawn between `UnreachableError` (nothing was sent, so
trying again is safe) and `OutcomeUnknownError` (the request may have taken effect).
"""

import msgspec


class KubeError(Exception):
    """Any failure of a call to the API server."""

    is_of_outage: bool = False
    """Whether an outage of the API server is its cause, which the log has already."""


class UnreachableError(KubeError):
    """The API server could not be reached; nothing was sent."""


class ConfigurationError(UnreachableError):
    """A kubeconfig, or a file or user in it, is unusable; the message has the details."""


class OutcomeUnknownError(KubeError):
    """The connection was lost, or time ran out, after sending: it may have taken effect."""


class SilentError(OutcomeUnknownError):
    """Nothing has come through an open watch for long: nothing happened, or it is broken."""


class MalformedAnswerError(KubeError):
    """The answer does not match the requested type."""


class ApiError(KubeError):
    """The API server answered, and refused."""

    def __init__(
        self, status: int, reason: str, message: str, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        """The HTTP status code."""
        self.reason = reason
        """`metav1.StatusReason`, one CamelCase word; "" when the answer was no Status."""
        self.message = message
        self.retry_after_s = retry_after_s
        """How long the server asks to wait, in seconds."""


class InvalidError(ApiError):
    """400 or 422: the object or the request is wrong; the same again fails again."""


class ForbiddenError(ApiError):
    """401 or 403: these credentials may not do this."""


class NamespaceTerminatingError(ForbiddenError):
    """403: the namespace is being deleted; nothing can be created in it."""


class NotFoundError(ApiError):
    """404: no such object, or no such kind."""


class AlreadyExistsError(ApiError):
    """409 on create: the name is taken, possibly by an earlier attempt of the same call."""


class ConflictError(ApiError):
    """409: the object has changed (resourceVersion or uid); read it again."""


class GoneError(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class ThrottledError(ApiError):
    """429: too many requests; wait `retry_after_s`."""


class ServerError(ApiError):
    """5xx: an error of the server; retrying may help."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidError,
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: ThrottledError,
}


class _StatusCause(msgspec.Struct):
    message: str = ""
    reason: str = ""


class _StatusDetails(msgspec.Struct, rename="camel"):
    retry_after_seconds: int = 0
    causes: list[_StatusCause] | None = None


class Status(msgspec.Struct, rename="camel"):
    """`metav1.Status`: the body of every refusal, and of ERROR events in a watch."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _StatusDetails | None = None


_status_decoder = msgspec.json.Decoder(Status)


def error_from_answer(http_status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """Build the error that an answer with `http_status` >= 400 means.

    `retry_after` is the header of that name. Proxies answer with bodies that are no Status: they
    become the message.
    """
    try:
        status = _status_decoder.decode(body)
    except msgspec.DecodeError:
        status = Status(message=body[:500].decode(errors="replace").strip())
    wait_s = _seconds(retry_after)
    if wait_s is None and status.details is not None and status.details.retry_after_seconds > 0:
        wait_s = float(status.details.retry_after_seconds)
    causes = status.details.causes if status.details is not None else None
    kind = _error_class(http_status, status.reason)
    if any(cause.reason == "NamespaceTerminating" for cause in causes or ()):
        kind = NamespaceTerminatingError
    return kind(http_status, status.reason, _whole_message(status) or "no message", wait_s)


def error_from_watch(body: bytes | msgspec.Raw) -> ApiError:
    """Build the error that an ERROR event in a watch carries."""
    status = _status_decoder.decode(body)
    return _error_class(status.code, status.reason)(status.code, status.reason, status.message)


def _whole_message(status: Status) -> str:
    """Return the message with those causes that it does not tell, such as which budget forbids."""
    causes = status.details.causes if status.details is not None else None
    untold = [cause.message for cause in causes or () if cause.message not in status.message]
    return " ".join([status.message, *untold]).strip()


def _error_class(http_status: int, reason: str) -> type[ApiError]:
    if reason == "AlreadyExists":
        return AlreadyExistsError
    if http_status >= 500:
        return ServerError
    return _BY_STATUS.get(http_status, ApiError)


def _seconds(retry_after: str | None) -> float | None:
    # RFC 9110 also allows a date; the API server and its proxies send seconds.
    if retry_after is None or not retry_after.isdecimal():
        return None
    return float(retry_after)
