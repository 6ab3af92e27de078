"""EventRecorder: writes events about objects for users (events.k8s.io/v1).

Used by the scheduler, the binder and the node agent; `events.book` decides which events are written
and when. Recording never blocks and never fails; events that cannot be written are counted in
`bindery_events_dropped_total`.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import structlog

from bindery.api.shown import shown_message
from bindery.api.times import timestamp_micro
from bindery.kube.client import Client
from bindery.kube.errors import KubeError
from bindery.kube.events.book import EventBook, ObjectReference, Occurrence, Series, Severity
from bindery.kube.metrics import EVENTS_DROPPED
from bindery.kube.objects.resources import EVENTS, Resource
from bindery.kube.objects.watched import KubeObject

__all__ = ["EventRecorder", "ObjectReference", "reference", "reference_to", "shortened"]


_log = structlog.get_logger()

# Limits of the API server's validation.
_NOTE_BYTES_MAX: Final = 1024
_REASON_MAX: Final = 128
_OBJECT_NAME_MAX: Final = 253


def reference_to(resource: Resource[Any], target: KubeObject) -> ObjectReference:
    """Return the reference to `target` for events."""
    return reference(resource, target.metadata.namespace, target.metadata.name, target.metadata.uid)


def reference(resource: Resource[Any], namespace: str, name: str, uid: str) -> ObjectReference:
    """Return a reference for events to an object that is known by its identity alone."""
    return ObjectReference(resource.api_version, resource.kind, namespace, name, uid)


class EventRecorder:
    """Records events on behalf of `component`, such as bindery-scheduler.

    Writes at most `burst` events at once and `per_second` in the long run, warnings first.
    """

    def __init__(
        self,
        client: Client,
        component: str,
        *,
        burst: int = 25,
        per_second: float = 5.0,
    ) -> None:
        self._client = client
        self._component = component
        self._instance = f"{component}-{socket.gethostname()}"[:128]
        self._clock = client.environment.now_s
        self._book = EventBook(self._clock(), burst=burst, per_second=per_second)
        self._wake = asyncio.Event()

    def normal(
        self, regarding: ObjectReference, reason: str, message: str, *, is_minor: bool = False
    ) -> None:
        """Record an event of type Normal. `reason` is one CamelCase word.

        `is_minor`: another event reports the same about a larger object, and has priority.
        """
        self.record(Occurrence(regarding, Severity.NORMAL, reason, message, is_minor))

    def warning(
        self, regarding: ObjectReference, reason: str, message: str, *, is_minor: bool = False
    ) -> None:
        """Record an event of type Warning."""
        self.record(Occurrence(regarding, Severity.WARNING, reason, message, is_minor))

    def record(self, occurrence: Occurrence) -> None:
        """Record an occurrence."""
        dropped = self._book.observe(occurrence, self._clock())
        if dropped is not None:
            EVENTS_DROPPED.labels(dropped.severity, "overflow").inc()
        self._wake.set()

    def later(self, occurrences: Iterator[Occurrence]) -> None:
        """Record occurrences, read one by one, that are written while no other event waits."""
        self._book.observe_later(occurrences, self._clock())
        self._wake.set()

    async def run(self) -> None:
        """Write events until cancelled; waiting events are lost then."""
        while True:
            series = self._book.take(self._clock())
            if series is not None:
                await self._write(series)
                continue
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._book.wait_s(self._clock())):
                    await self._wake.wait()

    async def _write(self, series: Series) -> None:
        occurrence = series.occurrence
        namespace = occurrence.regarding.namespace or "default"
        try:
            if series.name:
                patch = {"series": _count(series)}
                await self._client.patch(EVENTS, series.name, patch, namespace=namespace)
            else:
                event = self._event(series, namespace)
                # Named only after the write: meanwhile, repeated occurrences only increase the
                # count.
                series.name = (await self._client.create(EVENTS, event, namespace)).metadata.name
        except KubeError as error:
            self._book.forget(series)
            EVENTS_DROPPED.labels(occurrence.severity, "failed").inc()
            _log.info("event not written", reason=occurrence.reason, error=str(error))

    def _event(self, series: Series, namespace: str) -> dict[str, Any]:
        occurrence = series.occurrence
        regarding = occurrence.regarding
        suffix = f".{self._client.environment.token(16)}"
        event = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {
                "name": regarding.name[: _OBJECT_NAME_MAX - len(suffix)] + suffix,
                "namespace": namespace,
            },
            "eventTime": timestamp_micro(series.first_at),
            "type": occurrence.severity,
            "reason": occurrence.reason[:_REASON_MAX],
            "action": occurrence.reason[:_REASON_MAX],
            "note": shortened(occurrence.message),
            "reportingController": self._component,
            "reportingInstance": self._instance,
            "regarding": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "namespace": regarding.namespace,
                "name": regarding.name,
                "uid": regarding.uid,
            },
        }
        if series.count > 1:
            event["series"] = _count(series)
        return event


def _count(series: Series) -> dict[str, Any]:
    return {"count": series.count, "lastObservedTime": timestamp_micro(series.last_at)}


def shortened(message: str) -> str:
    """Return `message`, shortened to the limit of an event's note."""
    note = shown_message(message)
    encoded = note.encode()
    if len(encoded) <= _NOTE_BYTES_MAX:
        return note
    return encoded[: _NOTE_BYTES_MAX - 3].decode(errors="ignore") + "…"
