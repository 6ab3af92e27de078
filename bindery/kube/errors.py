"""Errors of calls to the API server, classified by the caller's options.

Raised by `client` and everything above it; aiohttp's own errors never leave the package. The most
important distinction is between `UnreachableError` (nothing was sent, so a retry is safe) and
`OutcomeUnknownError` (the request may have been executed).
"""

import msgspec


class KubeError(Exception):
    """Any failure of a call to the API server."""

    is_of_outage: bool = False
    """Whether an outage of the API server caused the error; the log already reports the outage."""


class UnreachableError(KubeError):
    """The API server could not be reached; nothing was sent."""


class ConfigurationError(UnreachableError):
    """A kubeconfig, or a file or user in it, is unusable; the message names the cause."""


class OutcomeUnknownError(KubeError):
    """The answer is lost or late after sending: the request may have been executed."""


class SilentError(OutcomeUnknownError):
    """An open watch was silent for long: nothing happened, or the connection is broken."""


class MalformedAnswerError(KubeError):
    """The answer does not match the requested type."""


class ApiError(KubeError):
    """The API server refused the request."""

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
        """Seconds that the server asks the client to wait."""


class InvalidError(ApiError):
    """400 or 422: the object or the request is wrong; the same request will fail again."""


class ForbiddenError(ApiError):
    """401 or 403: the credentials do not allow the request."""


class NamespaceTerminatingError(ForbiddenError):
    """403: the namespace is being deleted; nothing can be created in it."""


class NotFoundError(ApiError):
    """404: the object or the kind does not exist."""


class AlreadyExistsError(ApiError):
    """409 on create: the name is taken, possibly by an earlier attempt of the same call."""


class ConflictError(ApiError):
    """409: the object has changed (resourceVersion or uid); read the object again."""


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
    """Return the error for an answer with `http_status` >= 400.

    `retry_after` is the header of that name. A body that is not a Status, as from a proxy, becomes
    the message.
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
    """Return the error in an ERROR event of a watch."""
    status = _status_decoder.decode(body)
    return _error_class(status.code, status.reason)(status.code, status.reason, status.message)


def _whole_message(status: Status) -> str:
    """Return the message, completed with causes that it omits, such as the blocking budget."""
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
