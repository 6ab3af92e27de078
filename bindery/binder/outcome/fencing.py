"""Refuses requests of schedulers that no longer lead (fencing).

The `statements.manager` passes every request to `Fence.note`, including finished ones and those of
the first list; each attempt of a transaction calls `Fence.refusal`. The token is the number of
transitions of the scheduler's Lease, so a newer leader has a greater token. Each node pool has one
scheduler. The newest announcement of each pool is kept, so that the next binder knows its token.
"""

from bindery.api.bindrequest import BindFailureReason
from bindery.api.names import NODE_POOL_LABEL
from bindery.binder.outcome.outcome import PodFailure
from bindery.binder.outcome.retention import Finished, finished_as_a_whole
from bindery.kube.objects.bindrequests import BindRequest


class Fence:
    """The newest token of each node pool. Tokens only increase."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}  # node pool -> token
        self._kept: dict[str, tuple[int, Finished]] = {}
        """Node pool -> its newest announcement that a binder has read, and the token of it."""

    def note(self, labels: dict[str, str], token: int) -> None:
        """Record the `token` of a request with these labels."""
        pool = _pool(labels)
        if token > self._newest.get(pool, -1):
            self._newest[pool] = token

    def keep(self, announcement: BindRequest) -> Finished | None:
        """Keep an announcement that a binder has read; return the one that it may delete for it."""
        pool, token = _pool(announcement.metadata.labels), announcement.spec.fencing_token
        new = (token, finished_as_a_whole(announcement))
        old = self._kept.get(pool)
        if old is None or old[1].uid == new[1].uid:
            self._kept[pool] = new
            return None
        self._kept[pool], superseded = (new, old) if token >= old[0] else (old, new)
        return superseded[1]

    def refusal(self, labels: dict[str, str], token: int) -> PodFailure | None:
        """Return why a request with these labels and `token` is refused; None if it is valid."""
        newest = self._newest.get(_pool(labels), -1)
        if token >= newest:
            return None
        message = f"fencing token {token} is older than {newest}, the token of the current leader"
        return PodFailure(BindFailureReason.STALE_SCHEDULER, message, permanent=True)


def _pool(labels: dict[str, str]) -> str:
    return labels.get(NODE_POOL_LABEL, "")
