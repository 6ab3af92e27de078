"""Notices for users: events of the grouper for the objects concerned.

`loop` posts all notices of a workload after each plan. The invariant: an event is written when a
notice becomes true, and again only after the notice was not true for a while. An event that an
earlier process wrote is not repeated.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final, NamedTuple

import structlog

from bindery.grouper.objects import WRITTEN_EVENTS
from bindery.grouper.table.facts import Reference
from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.events.book import ObjectReference
from bindery.kube.events.recorder import EventRecorder, shortened

_log: Final = structlog.get_logger(__name__)


class Reason(StrEnum):
    """Reasons, beside those of the table, why a workload is not grouped as requested."""

    GROUP_REFUSED = "PodGroupRefused"
    """The API server does not take the PodGroup."""
    NAME_TAKEN = "PodGroupNameTaken"
    """A PodGroup with the same name exists, and the grouper did not create it."""
    QUEUE_KEPT = "QueueKept"
    """Pods are bound in another queue than the one that the workload has now."""


class Notice(NamedTuple):
    """A fact about an object, for its user."""

    object: Reference
    reason: str
    message: str
    is_warning: bool = True


class WrittenEvent(NamedTuple):
    """An event that an earlier process wrote."""

    uid: str
    reason: str
    note: str


class NoticeBoard:
    """The notices that hold now, by workload."""

    def __init__(self, events: EventRecorder, written: Collection[WrittenEvent] = ()) -> None:
        """`written`: the events that an earlier process wrote."""
        self._events = events
        self._written = set(written)
        self._posted: dict[str, frozenset[Notice]] = {}

    def post(self, workload: str, notices: Iterable[Notice]) -> None:
        """Write events for new `notices`; other notices of `workload` are no longer true."""
        now = frozenset(notices)
        for notice in sorted(now - self._posted.get(workload, frozenset())):
            if self._was_written(notice):
                continue
            write = self._events.warning if notice.is_warning else self._events.normal
            write(_regarding(notice.object), notice.reason, notice.message)
        if now:
            self._posted[workload] = now
        else:
            self.clear(workload)

    def clear(self, workload: str) -> None:
        """Forget the notices of a workload."""
        self._posted.pop(workload, None)

    def _was_written(self, notice: Notice) -> bool:
        """Return whether an earlier process wrote the event; true once for each event."""
        event = WrittenEvent(notice.object.uid, notice.reason, shortened(notice.message))
        if event not in self._written:
            return False
        self._written.remove(event)
        return True


async def written_events(client: Client, component: str) -> frozenset[WrittenEvent]:
    """Return the events of `component` in the cluster; none if they cannot be read."""
    try:
        events = await client.list(
            WRITTEN_EVENTS, field_selector=f"reportingController={component}"
        )
    except KubeError as error:
        _log.warning("events are not read, so some may be repeated", error=str(error))
        return frozenset()
    return frozenset(WrittenEvent(each.regarding.uid, each.reason, each.note) for each in events)


def _regarding(target: Reference) -> ObjectReference:
    return ObjectReference(
        target.api_version, target.kind, target.namespace, target.name, target.uid
    )
