"""Reads and writes times in Kubernetes' form (RFC 3339, UTC).

In memory a time is a float: seconds since the epoch.
"""

from datetime import UTC, datetime
from typing import Final

_WHOLE_SECONDS: Final = "%Y-%m-%dT%H:%M:%SZ"
_MICROSECONDS: Final = "%Y-%m-%dT%H:%M:%S.%fZ"
_LAST_S: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()


def seconds(text: str | None) -> float | None:
    """Return an RFC 3339 time as seconds since the epoch; None if `text` is empty or invalid."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def timestamp(at_s: float) -> str:
    """Return `at_s`, in seconds since the epoch, as `metav1.Time`: whole seconds.

    A time after the year 9999 (a user's delay may be 1e308 s) becomes the last second of 9999.
    """
    return datetime.fromtimestamp(min(at_s, _LAST_S), UTC).strftime(_WHOLE_SECONDS)


def timestamp_milli(at_s: float) -> str:
    """Return `at_s`, in seconds since the epoch, with milliseconds; `metav1.Time` reads it too."""
    text = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def timestamp_micro(at_s: float) -> str:
    """Return `at_s`, in seconds since the epoch, as `metav1.MicroTime`."""
    return datetime.fromtimestamp(at_s, UTC).strftime(_MICROSECONDS)


def age(created: str | None, now: datetime) -> str:
    """Return the time since `created`, an RFC 3339 time, as text: `45s`, `12m`, `5h`, `3d`."""
    if not created:
        return ""
    seconds = max(0, int((now - datetime.fromisoformat(created)).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
