"""Logs: one JSON object per line, from any logger."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from kopf._cogs.clients.errors import APIForbiddenError

from bindery.observability import logs, plainlogs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    yield io.StringIO()
    structlog.contextvars.clear_contextvars()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_starts_with_the_common_fields(stream: io.StringIO) -> None:
    logs.configure("scheduler", "info", stream)
    structlog.get_logger().info("gang bound", gang="ns/g", pods=8)

    [line] = lines(stream)
    assert list(line) == ["timestamp", "level", "component", "event", "gang", "pods"]
    assert line["component"] == "scheduler"
    assert line["level"] == "info"
    assert line["timestamp"].endswith("Z")


def test_ids_bound_to_the_context_are_on_every_line(stream: io.StringIO) -> None:
    logs.configure("scheduler", "info", stream)
    with structlog.contextvars.bound_contextvars(cycle=7, gang="ns/g"):
        structlog.get_logger().info("planned")
        logging.getLogger("library").warning("slow")
    structlog.get_logger().info("idle")

    planned, slow, idle = lines(stream)
    assert (planned["cycle"], planned["gang"]) == (7, "ns/g")
    assert (slow["cycle"], slow["gang"]) == (7, "ns/g")
    assert "cycle" not in idle


def test_lines_of_the_plain_logger_of_reservations_have_the_same_form(
    stream: io.StringIO,
) -> None:
    plainlogs.configure("reservation", "info", stream)
    try:
        int("eight")
    except ValueError:
        logging.getLogger("any").exception("failed", extra=plainlogs.with_fields(pod="p"))
    logging.getLogger("any").debug("unheard")

    [line] = lines(stream)
    assert list(line) == ["timestamp", "level", "component", "event", "pod", "exception"]
    assert line["timestamp"].endswith("Z")
    assert (line["level"], line["component"], line["event"], line["pod"]) == (
        "error",
        "reservation",
        "failed",
        "p",
    )


def test_a_logger_created_before_configure_follows_it(stream: io.StringIO) -> None:
    early = structlog.get_logger()
    logs.configure("binder", "warning", stream)
    early.info("unheard")
    early.warning("heard")

    assert [line["event"] for line in lines(stream)] == ["heard"]


def test_standard_logging_goes_through_the_same_formatter(stream: io.StringIO) -> None:
    logs.configure("binder", "info", stream)
    reference = {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "p", "uid": "u"}
    logging.getLogger("kopf.objects").warning("Handler %r ok", "f", extra={"k8s_ref": reference})
    logging.getLogger("kopf.objects").debug("unheard")

    [line] = lines(stream)
    assert line["event"] == "Handler 'f' ok"
    assert line["component"] == "binder"
    assert line["logger"] == "kopf.objects"
    assert (line["kind"], line["namespace"], line["name"], line["uid"]) == ("Pod", "ns", "p", "u")


def test_exceptions_stay_on_one_line(stream: io.StringIO) -> None:
    logs.configure("binder", "info", stream)
    try:
        int("eight")
    except ValueError:
        structlog.get_logger().exception("failed")
        logging.getLogger("library").exception("failed too")

    for line in lines(stream):
        assert line["level"] == "error"
        assert line["exception"].endswith("invalid literal for int() with base 10: 'eight'")


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError("no server"),
        TimeoutError(),
        aiohttp.ClientError("cut off"),
        pytest.param(
            APIForbiddenError("no roles yet", status=403, headers={}), id="after a restart"
        ),
    ],
)
def test_unreachable_and_refusing_servers_are_warnings_without_a_traceback(
    stream: io.StringIO, error: Exception
) -> None:
    logs.configure("binder", "info", stream)
    try:
        raise error
    except type(error):
        logging.getLogger("kopf.reactor").exception("the watcher has failed")

    [line] = lines(stream)
    assert line["level"] == "warning"
    assert line["error"] == (str(error) or repr(error))
    assert "exception" not in line


def test_only_the_last_attempt_of_kopf_is_logged_as_a_warning(
    stream: io.StringIO,
) -> None:
    logs.configure("binder", "info", stream)
    logging.getLogger("kopf.api").error("Request attempt #4/5 failed; will retry: GET")
    logging.getLogger("kopf.api").error("Request attempt #5/5 failed; escalating: GET")

    [line] = lines(stream)
    assert line["event"].startswith("Request attempt #5/5")
    assert line["level"] == "warning"


def test_every_attempt_of_kopf_is_logged_at_level_debug(stream: io.StringIO) -> None:
    logs.configure("binder", "debug", stream)
    logging.getLogger("kopf.api").error("Request attempt #4/5 failed; will retry: GET")

    assert len(lines(stream)) == 1


def test_other_operating_system_errors_keep_their_traceback(stream: io.StringIO) -> None:
    logs.configure("binder", "info", stream)
    try:
        Path("/no/such/file").read_bytes()
    except FileNotFoundError:
        logging.getLogger("kopf.reactor").exception("the watcher has failed")

    [line] = lines(stream)
    assert line["level"] == "error"
    assert line["exception"].endswith("No such file or directory: '/no/such/file'")


def test_values_other_than_json_are_written_as_text(stream: io.StringIO) -> None:
    logs.configure("binder", "info", stream)
    structlog.get_logger().info("odd", error=KeyError("k"), where={("ns", "p")})

    [line] = lines(stream)
    assert line["error"] == "'k'"


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="'loud' is not one of"):
        logs.configure("binder", "loud")
