"""The errors that answers of the API server raise."""

import json

import pytest

from bindery.kube import errors


def status(code: int, reason: str, **more: object) -> bytes:
    return json.dumps(
        {"kind": "Status", "status": "Failure", "code": code, "reason": reason, **more}
    ).encode()


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.InvalidError),
        (401, "Unauthorized", errors.ForbiddenError),
        (403, "Forbidden", errors.ForbiddenError),
        (404, "NotFound", errors.NotFoundError),
        (405, "MethodNotAllowed", errors.ApiError),
        (409, "AlreadyExists", errors.AlreadyExistsError),
        (409, "Conflict", errors.ConflictError),
        (410, "Expired", errors.GoneError),
        (422, "Invalid", errors.InvalidError),
        (429, "TooManyRequests", errors.ThrottledError),
        (500, "InternalError", errors.ServerError),
        (503, "ServiceUnavailable", errors.ServerError),
        (504, "Timeout", errors.ServerError),
    ],
)
def test_the_class_of_an_error_follows_code_and_reason(
    code: int, reason: str, kind: type[errors.ApiError]
) -> None:
    error = errors.error_from_answer(code, status(code, reason, message="why"))

    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (code, reason, "why")


def test_the_wait_is_from_the_header_or_else_from_the_details() -> None:
    body = status(429, "TooManyRequests", details={"retryAfterSeconds": 7})

    assert errors.error_from_answer(429, body, "3").retry_after_s == 3
    assert errors.error_from_answer(429, body).retry_after_s == 7
    assert errors.error_from_answer(429, body, "Wed, 21 Oct 2026 07:28:00 GMT").retry_after_s == 7
    assert errors.error_from_answer(429, status(429, "")).retry_after_s is None


def test_causes_missing_from_the_message_are_appended() -> None:
    causes = [{"reason": "DisruptionBudget", "message": "The budget b needs 2 and has 2."}]
    body = status(429, "TooManyRequests", message="Cannot evict pod.", details={"causes": causes})
    assert errors.error_from_answer(429, body).message == (
        "Cannot evict pod. The budget b needs 2 and has 2."
    )

    told = status(422, "Invalid", message="x is invalid: it is odd", details={"causes": causes[:0]})
    assert errors.error_from_answer(422, told).message == "x is invalid: it is odd"
    causes = [{"message": "it is odd", "field": "spec"}]
    told = status(422, "Invalid", message="x is invalid: it is odd", details={"causes": causes})
    assert errors.error_from_answer(422, told).message == "x is invalid: it is odd"


def test_an_answer_other_than_a_status_becomes_the_message() -> None:
    error = errors.error_from_answer(502, b"<html>Bad \xff gateway</html>\n")

    assert isinstance(error, errors.ServerError)
    assert error.message == "<html>Bad \N{REPLACEMENT CHARACTER} gateway</html>"


def test_a_terminating_namespace_is_recognised_by_the_cause() -> None:
    details = {"causes": [{"reason": "NamespaceTerminating", "message": "it is being terminated"}]}

    error = errors.error_from_answer(403, status(403, "Forbidden", details=details))

    assert type(error) is errors.NamespaceTerminatingError
    assert isinstance(error, errors.ForbiddenError)
