"""The lines of `logs` for a process that must start fast: by the standard library alone.

Used by reservation pods, which may have little processor time. Importing what `logs` needs takes
longer than all of their work.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

_FIELDS: Final = "fields"


def level_number(level: str) -> int:
    """Return the number that the standard library has for `level`, in upper or lower case.

    Raises:
        ValueError: there is no such level.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"log level {level!r} is not one of debug, info, warning, error, critical")
    return number


def configure(component: str, level: str = "info", stream: TextIO | None = None) -> None:
    """Send the records of `logging` from `level` on to `stream` (default: stderr), as JSON.

    Raises:
        ValueError: the level is unknown.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(_Lines(component))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level_number(level))


def with_fields(**fields: object) -> dict[str, dict[str, object]]:
    """Return the argument `extra` of a call of `logging` that adds `fields` to its line."""
    return {_FIELDS: fields}


class _Lines(logging.Formatter):
    """Writes one JSON object a line, with the fields of `logs`."""

    def __init__(self, component: str) -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")
        line = {
            "timestamp": at,
            "level": record.levelname.lower(),
            "component": self._component,
            "event": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()
