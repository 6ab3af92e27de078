"""Refuses requests of schedulers that no longer lead (fencing).

The `statements.manager` passes every request to `Fence.note`, including finished ones and those of
the first list; each attempt of a transaction calls `Fence.refusal`. The token is the number of
transitions of the scheduler's Lease, so a newer leader has a greater token. Each node pool has one
scheduler.
"""

from bindery.api.bindrequest import BindFailureReason
from bindery.api.names import NODE_POOL_LABEL
from bindery.binder.outcome.outcome import PodFailure


class Fence:
    """The newest token of each node pool. Tokens only increase."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}  # node pool -> token

    def note(self, labels: dict[str, str], token: int) -> None:
        """Record the `token` of a request with these labels."""
        pool = labels.get(NODE_POOL_LABEL, "")
        if token > self._newest.get(pool, -1):
            self._newest[pool] = token

    def refusal(self, labels: dict[str, str], token: int) -> PodFailure | None:
        """Return why a request with these labels and `token` is refused; None if it is valid."""
        newest = self._newest.get(labels.get(NODE_POOL_LABEL, ""), -1)
        if token >= newest:
            return None
        message = f"fencing token {token} is older than {newest}, the token of the current leader"
        return PodFailure(BindFailureReason.STALE_SCHEDULER, message, permanent=True)
