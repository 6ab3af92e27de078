"""Times as Kubernetes writes them (RFC 3339, UTC); `bindery.api.times` reads them."""

from datetime import UTC, datetime


def to_text(epoch_s: float) -> str:
    """Return the time as RFC 3339 with milliseconds."""
    moment = datetime.fromtimestamp(epoch_s, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
