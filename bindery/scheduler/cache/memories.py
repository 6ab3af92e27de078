"""The contract of the memories of the cluster, which forget deleted objects; commit counts."""

from typing import Protocol, TypeVar

from bindery.kube.objects.bindrequests import CommittedStatement
from bindery.scheduler.cache.holds import owner_and_commit
from bindery.scheduler.model.jobs import Uid

Key_contra = TypeVar("Key_contra", contravariant=True)


class ClusterMemory(Protocol[Key_contra]):
    """A memory by job or by UID."""

    def forget(self, key: Key_contra, /) -> None:
        """Drop what is known of a deleted object; a key that is not known changes nothing."""


class CommitCounts:
    """Gang or pod UID -> number of Statements committed for it."""

    def __init__(self) -> None:
        self._counts: dict[Uid, int] = {}

    def next(self, owner: Uid) -> int:
        """Count and return the number of the next commit for `owner`."""
        count = self._counts.get(owner, 0) + 1
        self._counts[owner] = count
        return count

    def note(self, statement: CommittedStatement) -> None:
        """Count a Statement: the name of the next request must be unused, also after a restart."""
        owner, count = owner_and_commit(statement.spec.id)
        if owner and count:
            self._counts[owner] = max(self._counts.get(owner, 0), count)

    def forget(self, owner: Uid) -> None:
        """Forget a deleted gang or pod."""
        self._counts.pop(owner, None)
