"""Times as Kubernetes writes them (RFC 3339, UTC) and as the binder counts them (epoch seconds)."""

from datetime import UTC, datetime


def to_text(epoch_s: float) -> str:
    """Return the time as RFC 3339 with milliseconds."""
    moment = datetime.fromtimestamp(epoch_s, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_epoch_s(text: str | None) -> float | None:
    """Return the time in seconds since the epoch; None if there is none that can be read."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
