"""The retries of calls: the policy alone."""

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bindery.kube.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    KubeError,
    NotFoundError,
    OutcomeUnknownError,
    ServerError,
    ThrottledError,
    UnreachableError,
)
from bindery.kube.http.calls import Caller
from bindery.kube.http.carrier import Answer
from bindery.kube.http.requests import ApiRequest, read
from bindery.kube.http.retry import Repeat, RetryPolicy, backoff_s
from bindery.kube.objects.resources import PODS

POLICY = RetryPolicy()
DRAWS = st.floats(0, 1, exclude_max=True)
FAILURES: list[KubeError] = [
    UnreachableError(),
    OutcomeUnknownError(),
    *(
        kind(status, "", "")
        for kind, status in (
            (ApiError, 418),
            (InvalidError, 422),
            (ForbiddenError, 403),
            (NotFoundError, 404),
            (ConflictError, 409),
            (GoneError, 410),
            (ThrottledError, 429),
            (ServerError, 500),
            (ServerError, 503),
            (ServerError, 504),
        )
    ),
]


def repeated_after(repeat: Repeat) -> set[str]:
    def name(failure: KubeError) -> str:
        return str(failure.status) if isinstance(failure, ApiError) else type(failure).__name__

    return {
        name(failure)
        for failure in FAILURES
        if POLICY.delay_s(failure, attempt=0, repeat=repeat, remaining_s=60, draw=0.5) is not None
    }


def test_an_idempotent_request_is_repeated_after_every_temporary_error() -> None:
    assert repeated_after(Repeat.ALWAYS) == {
        "UnreachableError",
        "OutcomeUnknownError",
        "429",
        "500",
        "503",
        "504",
    }


def test_a_create_with_a_name_is_not_repeated_without_an_answer() -> None:
    assert repeated_after(Repeat.ANSWERED) == {"UnreachableError", "429", "500", "503", "504"}


def test_a_create_without_a_name_is_repeated_only_if_it_had_no_effect() -> None:
    assert repeated_after(Repeat.REFUSED) == {"UnreachableError", "429", "503"}


@given(attempt=st.integers(0, 10_000), draw=DRAWS)
def test_backoff_is_between_half_and_all_of_its_exponential(attempt: int, draw: float) -> None:
    delay_s = backoff_s(attempt, 0.05, 5.0, draw)

    full_s = min(5.0, 0.05 * 2 ** min(attempt, 32))
    assert full_s / 2 <= delay_s <= full_s


@given(
    wait_s=st.floats(0, 100),
    attempt=st.integers(0, 100),
    remaining_s=st.floats(0, 100),
    draw=DRAWS,
)
def test_retry_after_is_honoured_or_the_call_fails(
    wait_s: float, attempt: int, remaining_s: float, draw: float
) -> None:
    delay_s = POLICY.delay_s(
        ThrottledError(429, "TooManyRequests", "", wait_s),
        attempt=attempt,
        repeat=Repeat.REFUSED,
        remaining_s=remaining_s,
        draw=draw,
    )

    if delay_s is None:
        assert wait_s + POLICY.cap_s >= remaining_s
    else:
        assert wait_s <= delay_s < remaining_s


@pytest.mark.parametrize("repeat", list(Repeat))
@given(remaining_s=st.floats(0.1, 60))
def test_only_repeatable_calls_reserve_time_for_a_second_attempt(
    repeat: Repeat, remaining_s: float
) -> None:
    attempt_s = POLICY.attempt_s(repeat, remaining_s)

    assert attempt_s == (remaining_s / 2 if repeat is Repeat.ALWAYS else remaining_s)


class _Silent:
    """A server that takes requests and never answers."""

    field_manager = "test"

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        await asyncio.sleep(min(timeout_s, 0.01))
        raise OutcomeUnknownError(f"{request.verb} {request.resource}: no answer in 0.1 s")

    def stream(self, request: ApiRequest, idle_s: float) -> AsyncGenerator[bytes, None]:
        """Part of the protocol; a call that is no watch never asks for it."""
        raise NotImplementedError

    async def close(self) -> None:
        """Part of the protocol; it has no connections."""


async def test_the_last_failure_names_the_number_of_attempts_and_the_whole_time() -> None:
    caller = Caller(_Silent(), timeout_s=0.5, draw=random.random)

    with pytest.raises(OutcomeUnknownError) as caught:
        await caller.call(read(PODS, "list", "/api/v1/pods"))

    found = re.fullmatch(
        r"list pods: no answer in 0\.1 s \(attempt (\d+), after (\d\.\d) s in all\)",
        str(caught.value),
    )
    assert found is not None
    assert int(found[1]) > 1
    assert float(found[2]) > 0.0


class _Unreachable(_Silent):
    """A server that refuses connections, for a process that is busy after each attempt."""

    def __init__(self, busy_s: float) -> None:
        self.timeouts_s: list[float] = []
        self._busy_s = busy_s

    async def send(self, request: ApiRequest, timeout_s: float) -> Answer:
        self.timeouts_s.append(timeout_s)
        asyncio.get_running_loop().call_soon(time.sleep, self._busy_s)
        raise UnreachableError(f"{request.verb} {request.resource}: connection refused")


async def test_no_attempt_begins_after_the_timeout_of_the_call() -> None:
    server = _Unreachable(busy_s=0.15)
    caller = Caller(server, timeout_s=0.1, draw=random.random)

    with pytest.raises(UnreachableError, match="connection refused"):
        await caller.call(read(PODS, "list", "/api/v1/pods"))

    assert len(server.timeouts_s) == 1
