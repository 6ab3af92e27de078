"""The translation of other schedulers' objects, and the fields that have no counterpart here.

Used by the modules `kai` and `volcano` of this package, by the grouper and by `bindery migrate`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import durationpy

from bindery.grouper.table.facts import mappings

Body = Mapping[str, Any]
"""An object as its API server sends it."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A field that has no equal here, or has another meaning."""

    field: str
    """The path of the field, such as `spec.minResources`."""
    value: str
    """The value of the field, as text."""
    reason: str
    """Why it does not carry over, and what takes its place."""


@dataclass
class Translation:
    """The spec of an object of ours, and what was lost on the way."""

    spec: dict[str, Any] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)

    def lose(self, path: str, value: object, reason: str) -> None:
        """Record that the field at `path` does not carry over."""
        self.losses.append(Loss(path, shortened(value), reason))


UNREADABLE: Final = "it cannot be read"
_MOST_VALUE: Final = 60


def shortened(value: object) -> str:
    """Return `value` as text that fits a table."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        value = ", ".join(f"{key}={shortened(each)}" for key, each in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        value = ", ".join(shortened(each) for each in value)
    text = str(value)
    return text if len(text) <= _MOST_VALUE else f"{text[: _MOST_VALUE - 1]}…"


def part(body: object, *path: str) -> dict[str, Any]:
    """Return the mapping at `path` of `body`; empty if there is none."""
    for key in path:
        body = body.get(key) if isinstance(body, Mapping) else None
    return dict(body) if isinstance(body, Mapping) else {}


def items(body: Body, key: str) -> list[dict[str, Any]]:
    """Return the mappings in the list `key` of `body`."""
    return [dict(each) for each in mappings(body.get(key))]


def metadata_of(body: Body) -> dict[str, Any]:
    """Return the metadata of an object."""
    return part(body, "metadata")


def labels_of(body: Body) -> dict[str, str]:
    """Return the labels of an object."""
    return part(body, "metadata", "labels")


def annotations_of(body: Body) -> dict[str, str]:
    """Return the annotations of an object."""
    return part(body, "metadata", "annotations")


def count(value: object) -> int | None:
    """Return `value` if it is a number of pods; else None."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if value >= 0 else None


def seconds(text: object) -> float | None:
    """Return the duration `text` in Go's notation, such as 1h30m, in seconds; else None."""
    if not isinstance(text, str):
        return None
    try:
        found = float(durationpy.from_str(text).total_seconds())
    except (durationpy.DurationError, ValueError, OverflowError):
        return None
    return int(found) if found == int(found) else found
