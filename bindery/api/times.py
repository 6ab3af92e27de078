"""Times as Kubernetes writes them (RFC 3339), read as seconds since the epoch."""

from datetime import datetime


def seconds(text: str | None) -> float | None:
    """Return an RFC 3339 time as seconds since the epoch; None if there is none to read."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
