"""Answers that refuse a request, with the Status that the API server sends."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bindery.kube.http.carrier import Answer


class NotModelledError(Exception):
    """A request needs a part of Kubernetes that the model does not have.

    It is not an answer: the history, or the product, has left the modelled part.
    """


class Refusal(Exception):  # noqa: N818  # an answer, not an error of the model
    """The API server refuses the request with this status code and reason."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": dict(more or {}),
            "status": "Failure",
            "message": message,
            "reason": reason,
            "code": code,
        }
        if details:
            self.status["details"] = dict(details)

    def answer(self) -> Answer:
        """Return the answer of the server."""
        wait_s = self.status.get("details", {}).get("retryAfterSeconds")
        body = msgspec.json.encode(self.status)
        return Answer(self.code, body, None if wait_s is None else str(wait_s))


def bad_request(message: str) -> Refusal:
    """Return the refusal of a request that cannot be read."""
    return Refusal(400, "BadRequest", message)


def not_found(plural: str, name: str) -> Refusal:
    """Return the refusal for an object that does not exist."""
    return Refusal(404, "NotFound", f'{plural} "{name}" not found', details={"name": name})


def no_such_path() -> Refusal:
    """Return the refusal for a path that is not served."""
    return Refusal(404, "NotFound", "the server could not find the requested resource")


def conflict(plural: str, name: str, message: str) -> Refusal:
    """Return the refusal of a write to another version or another object."""
    text = f'Operation cannot be fulfilled on {plural} "{name}": {message}'
    return Refusal(409, "Conflict", text, details={"name": name})


CHANGED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def already_exists(plural: str, name: str) -> Refusal:
    """Return the refusal of a creation whose name is taken."""
    text = f'{plural} "{name}" already exists'
    return Refusal(409, "AlreadyExists", text, details={"name": name})


def invalid(kind: str, name: str, problems: Sequence[str]) -> Refusal:
    """Return the refusal of an object that breaks rules of its kind."""
    causes = [{"reason": "FieldValueInvalid", "message": problem} for problem in problems]
    text = f'{kind} "{name}" is invalid: {"; ".join(problems)}'
    return Refusal(422, "Invalid", text, details={"name": name, "kind": kind, "causes": causes})


def forbidden(plural: str, name: str, message: str, causes: Sequence[Any] = ()) -> Refusal:
    """Return the refusal of a request that is not allowed."""
    text = f'{plural} "{name}" is forbidden: {message}'
    details: dict[str, Any] = {"name": name, "kind": plural}
    if causes:
        details["causes"] = list(causes)
    return Refusal(403, "Forbidden", text, details=details)


def expired(message: str, continue_token: str = "") -> Refusal:
    """Return the refusal of a version or continue token that is too old."""
    return Refusal(410, "Expired", message, more={"continue": continue_token})
