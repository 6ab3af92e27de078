"""Structured logs: one JSON object a line on stderr, the same from every component.

Each component calls `configure` once at start-up. Fields: timestamp (UTC, RFC 3339), level,
component, event (a constant text), then what the call and structlog's context variables add (ids
of cycle, gang, pod). Libraries that use the standard `logging` (kopf, aiohttp) go through the same
formatter, so every line of a process can be parsed.
"""

import logging
import sys
from collections.abc import Iterable
from typing import Final, TextIO

import aiohttp
import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from bindery.observability.plainlogs import level_number

_FIRST: Final = ("timestamp", "level", "component", "event")

_KOPF_ATTEMPT: Final = "Request attempt #"
_KOPF_REPEATS: Final = "failed; will retry"
"""Parts of kopf's messages, at level error, about a request that an API server did not answer, and
of those about one that kopf sends again."""

_CHATTY: Final = ("aiohttp.access", "asyncio")
"""Loggers whose information is noise at our own level: heard from warnings on."""


def configure(component: str, level: str = "info", stream: TextIO | None = None) -> None:
    """Send all logs of this process from `level` on to `stream`, as JSON.

    `component` is the name that events and requests of the process have too. `stream` is stderr
    unless given. May be called again; the last call counts. Raises ValueError for an unknown level.
    """
    number = level_number(level)
    target = stream if stream is not None else sys.stderr
    shared = _shared_processors(component)
    structlog.configure(
        processors=[*shared, *_rendering()],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(target),
        # Module-level loggers are made before this call, in import order.
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_logger_name,
                structlog.stdlib.ExtraAdder(allow={"k8s_ref"}),
                _name_kopf_object,
                *shared,
                _shorten_network_error,
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering()],
        )
    )
    if number > logging.DEBUG:
        handler.addFilter(_is_final)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))


def _shared_processors(component: str) -> list[Processor]:
    def add_component(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["component"] = component
        return event

    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        add_component,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]


def _rendering() -> Iterable[Processor]:
    return (structlog.processors.format_exc_info, _order, _render)


def _name_kopf_object(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Turn the object reference that kopf attaches to its records into plain fields."""
    reference = event.pop("k8s_ref", None)
    if isinstance(reference, dict):
        for field in ("kind", "namespace", "name", "uid"):
            if reference.get(field):
                event[field] = reference[field]
    return event


def _shorten_network_error(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Report an API server that a library cannot reach, or that refuses, as a warning of one line.

    Such an error is no defect, and the library tries again; the traceback would hide the tracebacks
    of defects. A server that has just started refuses with 403 until it has read its roles.
    """
    if str(event.get("event")).startswith(_KOPF_ATTEMPT):
        event["level"] = "warning"
    info = event.get("exc_info")
    error = info[1] if isinstance(info, tuple) else None
    is_answer = type(error).__module__.startswith("kopf.") and hasattr(error, "status")
    if is_answer or isinstance(error, (aiohttp.ClientError, ConnectionError, TimeoutError)):
        del event["exc_info"]
        event["level"], event["error"] = "warning", str(error) or repr(error)
    return event


def _is_final(record: logging.LogRecord) -> bool:
    """Return False for a failed attempt that kopf repeats; the last attempt has its own record."""
    message = record.getMessage()
    return not (message.startswith(_KOPF_ATTEMPT) and _KOPF_REPEATS in message)


def _order(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {**{key: event.pop(key) for key in _FIRST if key in event}, **event}


def _render(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
