"""What the grouper tells users: events at the objects concerned, each once.

`loop` hands over all notices of a workload after each plan. The invariant: a notice is told when it
becomes true, and again only after it was not true for a while. What an event of an earlier process
says is not told again.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final, NamedTuple

import structlog

from bindery.grouper.objects import WRITTEN_EVENTS
from bindery.grouper.table.facts import Reference
from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.eventbook import ObjectReference
from bindery.kube.events import EventRecorder, shortened

_log: Final = structlog.get_logger(__name__)


class Reason(StrEnum):
    """Why a workload is not grouped as it asks, beside the reasons of the table."""

    GROUP_REFUSED = "PodGroupRefused"
    """The API server does not take the PodGroup."""
    NAME_TAKEN = "PodGroupNameTaken"
    """A PodGroup of the same name is there that the grouper has not made."""
    QUEUE_KEPT = "QueueKept"
    """Pods are bound in another queue than the one that the workload asks for now."""


class Notice(NamedTuple):
    """Something that a user should know."""

    object: Reference
    reason: str
    message: str
    is_warning: bool = True


class Told(NamedTuple):
    """What an event says."""

    uid: str
    reason: str
    note: str


class NoticeBoard:
    """The notices that hold now, by workload."""

    def __init__(self, events: EventRecorder, told: Collection[Told] = ()) -> None:
        """`told`: the events that an earlier process wrote."""
        self._events = events
        self._told = set(told)
        self._posted: dict[str, frozenset[Notice]] = {}

    def post(self, workload: str, notices: Iterable[Notice]) -> None:
        """Tell those of `notices` that did not hold before; the others do not hold any more."""
        now = frozenset(notices)
        for notice in sorted(now - self._posted.get(workload, frozenset())):
            if self._was_told(notice):
                continue
            tell = self._events.warning if notice.is_warning else self._events.normal
            tell(_regarding(notice.object), notice.reason, notice.message)
        if now:
            self._posted[workload] = now
        else:
            self.clear(workload)

    def clear(self, workload: str) -> None:
        """Take note that a workload is gone."""
        self._posted.pop(workload, None)

    def _was_told(self, notice: Notice) -> bool:
        """Return whether an event of an earlier process says so; true once for each event."""
        told = Told(notice.object.uid, notice.reason, shortened(notice.message))
        if told not in self._told:
            return False
        self._told.remove(told)
        return True


async def told_before(client: Client, component: str) -> frozenset[Told]:
    """Return what the events of `component` in the cluster say; nothing if they cannot be read."""
    try:
        events = await client.list(
            WRITTEN_EVENTS, field_selector=f"reportingController={component}"
        )
    except KubeError as error:
        _log.warning("events are not read, so some may be repeated", error=str(error))
        return frozenset()
    return frozenset(Told(each.regarding.uid, each.reason, each.note) for each in events)


def _regarding(target: Reference) -> ObjectReference:
    return ObjectReference(
        target.api_version, target.kind, target.namespace, target.name, target.uid
    )
