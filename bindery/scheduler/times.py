"""Times as `metav1.Time` writes them; `bindery.api.times` reads them."""

from datetime import UTC, datetime


def timestamp(at: float) -> str:
    """Return `at`, in seconds since the epoch, as `metav1.Time` writes it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
