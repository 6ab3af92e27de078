"""AdmissionReviews (admission.k8s.io/v1): reads requests and writes responses. Pure."""

import json
from collections.abc import Sequence
from typing import Any, Final

_API_VERSION: Final = "admission.k8s.io/v1"
_MOST_WARNING: Final = 250
Review = dict[str, Any]
Manifest = dict[str, Any]
"""An object in its JSON form."""


class MalformedReviewError(Exception):
    """The body is not an AdmissionReview of an object."""


def request_in(body: bytes) -> Review:
    """Return the request of a review.

    Raises:
        MalformedReviewError: `body` cannot be read.
    """
    try:
        request = json.loads(body)["request"]
        found = request["oldObject" if request.get("operation") == "DELETE" else "object"]
        is_sound = isinstance(request["uid"], str) and isinstance(found, dict)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedReviewError(f"not an AdmissionReview: {error}") from error
    if not is_sound:
        raise MalformedReviewError("not an AdmissionReview: it has no uid or no object")
    return dict(request)


def answer(request: Review, *, allowed: bool, **more: Any) -> Review:
    """Return the answer to `request`; `more`: further fields of the response."""
    response = {"uid": request["uid"], "allowed": allowed, **more}
    response = {name: value for name, value in response.items() if value != []}
    return {"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": response}


def verdict(request: Review, problems: Sequence[str], warnings: Sequence[str] = ()) -> Review:
    """Return an answer that refuses with all `problems`, or allows if there are none."""
    shortened = [warning[:_MOST_WARNING] for warning in warnings]
    if not problems:
        return answer(request, allowed=True, warnings=shortened)
    status = {"code": 422, "reason": "Invalid", "message": "; ".join(problems)}
    return answer(request, allowed=False, warnings=shortened, status=status)
