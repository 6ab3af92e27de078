"""What the grouper tells users: events at the objects concerned, each once.

`loop` hands over all notices of a workload after each plan. The invariant: a notice is told when it
becomes true, and again only after it was not true for a while.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from bindery.grouper.table.facts import Reference
from bindery.kube.eventbook import ObjectReference
from bindery.kube.events import EventRecorder


class Reason(StrEnum):
    """Why a workload is not grouped as it asks, beside the reasons of the table."""

    GROUP_REFUSED = "PodGroupRefused"
    """The API server does not take the PodGroup."""
    NAME_TAKEN = "PodGroupNameTaken"
    """A PodGroup of the same name is there that the grouper has not made."""
    QUEUE_KEPT = "QueueKept"
    """Pods are bound in another queue than the one that the workload asks for now."""
    OWNER_FORBIDDEN = "OwnerNotReadable"
    OWNER_GONE = "OwnerGone"


class Notice(NamedTuple):
    """Something that a user should know."""

    object: Reference
    reason: str
    message: str
    is_warning: bool = True


class NoticeBoard:
    """The notices that hold now, by workload."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._posted: dict[str, frozenset[Notice]] = {}

    def post(self, workload: str, notices: Iterable[Notice]) -> None:
        """Tell those of `notices` that did not hold before; the others do not hold any more."""
        now = frozenset(notices)
        for notice in sorted(now - self._posted.get(workload, frozenset())):
            tell = self._events.warning if notice.is_warning else self._events.normal
            tell(_regarding(notice.object), notice.reason, notice.message)
        if now:
            self._posted[workload] = now
        else:
            self.clear(workload)

    def clear(self, workload: str) -> None:
        """Take note that a workload is gone."""
        self._posted.pop(workload, None)


def _regarding(target: Reference) -> ObjectReference:
    return ObjectReference(
        target.api_version, target.kind, target.namespace, target.name, target.uid
    )
