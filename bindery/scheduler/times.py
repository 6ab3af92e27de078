"""Kubernetes timestamps and seconds since the epoch, one into the other."""

from datetime import UTC, datetime


def seconds(text: str | None) -> float | None:
    """Return an RFC 3339 time as seconds since the epoch; None if there is none to read."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def timestamp(at: float) -> str:
    """Return `at`, in seconds since the epoch, as `metav1.Time` writes it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
