"""The past for tests in which nothing is kept."""

from collections.abc import Sequence

from bindery.dashboard.past import PastEviction, PastPlan, PastWait, QueuePoint
from bindery.scheduler.model.jobs import JobKey


class NoHistory:
    """A reader where nothing is kept."""

    since: float | None = None

    def evictions_of(self, gang: JobKey) -> Sequence[PastEviction]:  # noqa: ARG002
        """Return nothing."""
        return ()

    def waits(self, gang: JobKey) -> Sequence[PastWait]:  # noqa: ARG002
        """Return nothing."""
        return ()

    def plans(self, gang: JobKey) -> Sequence[PastPlan]:  # noqa: ARG002
        """Return nothing."""
        return ()

    def queue_trend(self, queue: str, resource: str) -> Sequence[QueuePoint]:  # noqa: ARG002
        """Return nothing."""
        return ()
