"""Refuses requests of schedulers that no longer lead (fencing).

The `statements.manager` passes every request to `Fence.note`, including finished ones and those of
the first list; each attempt of a transaction calls `Fence.refusal`. The token is the number of
transitions of the scheduler's Lease, so a newer leader has a greater token. Each node pool has one
scheduler. The newest announcement of each pool is kept, so that the next binder knows its token.
"""

from bindery.api.bindrequest import BindFailureReason
from bindery.api.names import NODE_POOL_LABEL
from bindery.binder.outcome.outcome import PodFailure
from bindery.kube.objects.bindrequests import BindRequest


class Fence:
    """The newest token of each node pool. Tokens only increase."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}  # node pool -> token
        self._kept: dict[str, BindRequest] = {}
        """Node pool -> its newest announcement that a binder has read."""

    def note(self, labels: dict[str, str], token: int) -> None:
        """Record the `token` of a request with these labels."""
        pool = _pool(labels)
        if token > self._newest.get(pool, -1):
            self._newest[pool] = token

    def keep(self, announcement: BindRequest) -> BindRequest | None:
        """Keep an announcement that a binder has read; return the one that it may delete for it."""
        pool = _pool(announcement.metadata.labels)
        both = (self._kept.get(pool, announcement), announcement)
        older, self._kept[pool] = sorted(both, key=lambda each: each.spec.fencing_token)
        return older if older.metadata.uid != self._kept[pool].metadata.uid else None

    def refusal(self, labels: dict[str, str], token: int) -> PodFailure | None:
        """Return why a request with these labels and `token` is refused; None if it is valid."""
        newest = self._newest.get(_pool(labels), -1)
        if token >= newest:
            return None
        message = f"fencing token {token} is older than {newest}, the token of the current leader"
        return PodFailure(BindFailureReason.STALE_SCHEDULER, message, permanent=True)


def _pool(labels: dict[str, str]) -> str:
    return labels.get(NODE_POOL_LABEL, "")
