"""Log lines about an API server that does not answer."""

from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs
from structlog.typing import EventDict

from bindery.kube.errors import (
    ForbiddenError,
    InvalidError,
    KubeError,
    OutcomeUnknownError,
    ServerError,
    UnreachableError,
)
from bindery.kube.http.outages import Outages, log_failure

GONE, BACK = "the API server does not answer", "the API server answers again"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outages(clock: Clock) -> Outages:
    return Outages(clock)


@pytest.fixture
def lines() -> Iterator[list[EventDict]]:
    with capture_logs() as found:
        yield found


def unreachable(outages: Outages) -> KubeError:
    error = UnreachableError("connection refused")
    outages.failed(error)
    return error


def forbidden(outages: Outages) -> KubeError:
    outages.answered(403)
    error = ForbiddenError(403, "Forbidden", "no roles yet")
    outages.failed(error)
    return error


def go_down(outages: Outages, clock: Clock) -> None:
    unreachable(outages)
    clock.now_s += 3
    unreachable(outages)


def test_an_outage_is_two_lines_for_any_number_of_failed_calls(
    outages: Outages, clock: Clock, lines: list[EventDict]
) -> None:
    go_down(outages, clock)
    for _ in range(100):
        clock.now_s += 1
        log_failure(structlog.get_logger(), "watch failed", unreachable(outages))
    outages.answered(200)

    reported = [line for line in lines if line["log_level"] != "debug"]
    assert [(line["log_level"], line["event"]) for line in reported] == [
        ("warning", GONE),
        ("info", BACK),
    ]
    assert (reported[1]["after_s"], reported[1]["failures"]) == (103.0, 102)


def test_a_connection_that_is_cut_and_opened_again_is_no_outage(
    outages: Outages, clock: Clock, lines: list[EventDict]
) -> None:
    for _ in range(10):
        error = OutcomeUnknownError("connection lost")
        outages.failed(error)
        clock.now_s += 3
        outages.answered(200)
        assert not error.is_of_outage

    assert lines == []


def test_refusals_of_a_server_that_just_started_belong_to_the_outage(
    outages: Outages, clock: Clock, lines: list[EventDict]
) -> None:
    go_down(outages, clock)
    assert forbidden(outages).is_of_outage
    assert lines[-1]["event"] == GONE
    outages.answered(200)
    assert lines[-1]["event"] == BACK
    clock.now_s += 9
    assert forbidden(outages).is_of_outage
    starting = ServerError(503, "ServiceUnavailable", "storage is initializing")
    outages.failed(starting)
    assert starting.is_of_outage

    clock.now_s += 2
    assert not forbidden(outages).is_of_outage


def test_refusals_that_do_not_end_are_reported(outages: Outages, clock: Clock) -> None:
    go_down(outages, clock)
    assert forbidden(outages).is_of_outage
    clock.now_s += 11
    assert forbidden(outages).is_of_outage, "it ends with this answer"
    clock.now_s += 11
    assert not forbidden(outages).is_of_outage


def test_an_invalid_request_is_reported_during_an_outage(outages: Outages, clock: Clock) -> None:
    go_down(outages, clock)
    wrong = InvalidError(422, "Invalid", "no such field")
    outages.failed(wrong)

    assert not wrong.is_of_outage


def test_a_second_outage_is_reported_like_the_first(
    outages: Outages, clock: Clock, lines: list[EventDict]
) -> None:
    for _ in range(2):
        go_down(outages, clock)
        outages.answered(200)

    assert [line["event"] for line in lines] == [GONE, BACK, GONE, BACK]
