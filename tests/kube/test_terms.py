"""What is sent for a term of leadership, and what no longer is."""

import asyncio

import pytest

from bindery.kube.http.carrier import Answer, TermCarrier
from bindery.kube.http.requests import JSON, ApiRequest
from bindery.kube.http.retry import Repeat

ASKED = ApiRequest("get", "GET", "pods", "/api/v1/pods", Repeat.ALWAYS, JSON)


class Counting:
    """A carrier that counts what it sends."""

    field_manager = "test"

    def __init__(self) -> None:
        self.sent = 0

    async def send(self, _request: ApiRequest, _timeout_s: float) -> Answer:
        self.sent += 1
        return Answer(200, b"{}", None)

    def stream(self, *_: object) -> object:
        raise NotImplementedError

    async def close(self) -> None: ...


async def test_nothing_is_sent_for_a_term_that_is_over() -> None:
    """A process that was frozen for longer than its Lease goes on in the middle of its work."""
    carrier, is_valid = Counting(), True
    of_term = TermCarrier(carrier, lambda: is_valid)  # type: ignore[arg-type]  # streams nothing
    await of_term.send(ASKED, 1.0)

    is_valid = False
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(of_term.send(ASKED, 1.0), 0.01)

    assert carrier.sent == 1
