"""Fencing: refuses requests of schedulers that no longer lead.

The `statements.manager` shows every request to `Fence.note`, also finished ones and those that are
there at the start; each attempt of a transaction asks `Fence.refusal`. The token is the count of
the scheduler Lease's transitions, so that a newer leader has a greater one. One pool has one
scheduler.
"""

from bindery.api.bindrequest import BindFailureReason
from bindery.api.names import NODE_POOL_LABEL
from bindery.binder.outcome.outcome import PodFailure


class Fence:
    """The newest token of each node pool. It only ever rises."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}  # node pool -> token

    def note(self, labels: dict[str, str], token: int) -> None:
        """Take in a request with these labels that carries `token`."""
        pool = labels.get(NODE_POOL_LABEL, "")
        if token > self._newest.get(pool, -1):
            self._newest[pool] = token

    def refusal(self, labels: dict[str, str], token: int) -> PodFailure | None:
        """Return why a request with these labels and `token` must not be carried out, if so."""
        newest = self._newest.get(labels.get(NODE_POOL_LABEL, ""), -1)
        if token >= newest:
            return None
        message = f"fencing token {token} is older than {newest}, the token of the current leader"
        return PodFailure(BindFailureReason.STALE_SCHEDULER, message, permanent=True)
