"""Times as they stand in objects."""

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=256)
def _stamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp(at_s: float) -> str:
    """Return seconds since the epoch as `metav1.Time`, without fractions."""
    return _stamp(int(at_s))


def parsed_s(text: str) -> float:
    """Return the seconds since the epoch of a `metav1.Time`."""
    return datetime.fromisoformat(text).timestamp()
