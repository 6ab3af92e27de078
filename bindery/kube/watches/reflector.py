"""Reflector: a local mirror of all objects of a kind, updated by list and watch.

The scheduler's cache, the binder and the node agent run several. `watches.decoding` decodes the
objects, and `watches.store` computes the changes. Invariant: across disconnections, expired
versions and restarts of the API server, no change is lost and none is delivered twice.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Generic, TypeVar

import structlog

from bindery.kube.client import Client
from bindery.kube.errors import (
    GoneError,
    KubeError,
    OutcomeUnknownError,
    SilentError,
    UnreachableError,
)
from bindery.kube.http.outages import log_failure
from bindery.kube.http.requests import Selection
from bindery.kube.http.retry import backoff_s
from bindery.kube.metrics import WATCH_CHANGES, WATCH_ERRORS, WATCH_MALFORMED, WATCH_RELISTS
from bindery.kube.objects.resources import Resource
from bindery.kube.objects.watched import KubeObject, Meta
from bindery.kube.watches.decoding import LenientDecoder
from bindery.kube.watches.store import Change, EventType, Key, Malformed, Store

__all__ = ["Change", "EventType", "Key", "Reflector", "WatchTiming"]

T = TypeVar("T", bound=KubeObject)

_log = structlog.get_logger()

_CUTS_IN_A_ROW: Final = 7
"""Lost connections in a row until they are reported: after 3 to 6 s, an outage is logged."""


@dataclass(frozen=True)
class WatchTiming:
    """Time limits of a watch, in seconds."""

    shortest_s: int = 300
    longest_s: int = 600
    """The server ends a watch after a random time between the two, so that watches spread over API
    servers again after a restart (as client-go's reflector does)."""
    idle_s: float = 90.0
    """Maximum silence before the watch is opened again. Bookmarks come every 60 s even without
    changes, but not for every kind (events)."""
    backoff_base_s: float = 0.1
    backoff_cap_s: float = 30.0
    unhealthy_after_s: float = 240.0
    """Silence after which the mirror counts as out of date."""


@dataclass(eq=False)
class Reflector(Generic[T]):
    """Mirrors the objects of `resource` and calls `on_change` for each change, in order.

    `on_change` is called from the event loop and must not block. Its exceptions are logged and
    counted, and the next change is still delivered. `on_malformed` receives the metadata of each
    version of an object that does not decode, and the reason. `on_failure` receives the error of a
    failed list or watch, which is retried.
    """

    client: Client
    resource: Resource[T]
    on_change: Callable[[Change[T]], None] = lambda _: None
    _: KW_ONLY
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    on_malformed: Callable[[Meta, str], None] | None = None
    on_failure: Callable[[KubeError], None] | None = None
    timing: WatchTiming = WatchTiming()
    synced: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set after the first list has been delivered."""
    is_listing: bool = field(default=False, init=False)
    """Whether changes come from a list: deletions first, then by name, in no order of time."""

    def __post_init__(self) -> None:
        self._selection = Selection(self.namespace, self.label_selector, self.field_selector)
        self._decoder = LenientDecoder(self.resource)
        self._store: Store[T] = Store()
        self._resume_at = ""  # the resourceVersion after all delivered changes; "": list again
        self._last_word_s = 0.0
        self._failures = 0
        self._asked = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        """Waiters for a list that has not started yet."""
        WATCH_ERRORS.labels(self.resource.plural)  # so that alerts see the first one
        self._changes = {
            kind: WATCH_CHANGES.labels(self.resource.plural, kind) for kind in EventType
        }

    @property
    def objects(self) -> Mapping[Key, T]:
        """All objects by (namespace, name), as a live, read-only view."""
        return self._store.objects

    def healthy(self) -> bool:
        """Whether the mirror is filled and up to date. To be called in the event loop."""
        silent_s = asyncio.get_running_loop().time() - self._last_word_s
        return self.synced.is_set() and silent_s < self.timing.unhealthy_after_s

    async def catch_up(self) -> None:
        """Wait until the mirror contains everything that was stored at the time of the call.

        A watch may lag behind or wait to reconnect without notice, so this lists the objects.
        """
        listed = asyncio.get_running_loop().create_future()
        self._waiting.append(listed)
        self._asked.set()
        await listed

    async def run(self) -> None:
        """Mirror until cancelled."""
        while True:
            try:
                if not self._resume_at or self._waiting:
                    await self._list()
                await self._until_asked(self._watch())
            except GoneError:
                # The resourceVersion is too old, as for all watches after a restart of the server.
                _log.debug("watch expired", resource=self.resource.plural, at=self._resume_at)
                self._resume_at = ""
            except SilentError:
                # Nothing happens or the connection is broken: reconnect in both cases.
                _log.debug("watch silent", resource=self.resource.plural)
                now_s = asyncio.get_running_loop().time()
                self._heard(now_s - self.timing.idle_s)  # it was opened then, or later
            except KubeError as error:
                self._log_failure(error)
                if self.on_failure is not None:
                    self.on_failure(error)
            if self._failures:
                pause_s = backoff_s(
                    self._failures - 1,
                    self.timing.backoff_base_s,
                    self.timing.backoff_cap_s,
                    self.client.environment.random.random(),
                )
                await self._until_asked(asyncio.sleep(pause_s))
            self._failures += 1  # reset by the next answer of the server

    def _log_failure(self, error: KubeError) -> None:
        is_cut = isinstance(error, (UnreachableError, OutcomeUnknownError))
        if is_cut and self._failures < _CUTS_IN_A_ROW:
            _log.debug("watch cut off", resource=self.resource.plural, error=str(error))
        else:
            log_failure(_log, "watch failed", error, resource=self.resource.plural)

    async def _until_asked(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`; end it early when a caller requests a list."""
        task = asyncio.create_task(work)
        asked = asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            for each in (task, asked):
                each.cancel()
            await asyncio.gather(task, asked, return_exceptions=True)

    async def _list(self) -> None:
        self._asked.clear()
        WATCH_RELISTS.labels(self.resource.plural).inc()
        waiting = len(self._waiting)
        found, version = await self.client.list_with_version(
            self.resource, self._decoder.page, self._selection
        )
        for each in found:
            if isinstance(each, Malformed):
                self._report(each)
        self.is_listing = True
        for change in self._store.reconcile(found):
            self._notify(change)
        self.is_listing = False
        self._resume_at = version
        self._last_word_s = asyncio.get_running_loop().time()
        self.synced.set()
        served, self._waiting = self._waiting[:waiting], self._waiting[waiting:]
        for listed in served:
            if not listed.done():
                listed.set_result(None)

    async def _watch(self) -> None:
        span_s = self.timing.longest_s - self.timing.shortest_s
        timeout_s = self.timing.shortest_s + int(span_s * self.client.environment.random.random())
        stream = self.client.watch(
            self.resource,
            self._selection,
            resource_version=self._resume_at,
            timeout_s=timeout_s,
            idle_s=self.timing.idle_s,
        )
        async with aclosing(stream) as lines:
            async for line in lines:
                self._take(line)
                self._heard(asyncio.get_running_loop().time())

    def _heard(self, at_s: float) -> None:
        """Record that the server has answered at `at_s`, by the clock of the event loop."""
        self._last_word_s = max(self._last_word_s, at_s)
        self._failures = 0

    def _take(self, line: bytes) -> None:
        kind, found = self._decoder.event(line)
        if kind == "BOOKMARK" and isinstance(found, Malformed):
            self._resume_at = found.meta.resource_version or self._resume_at
            return
        if isinstance(found, Malformed):
            self._report(found)
        for change in self._store.lose(found) if kind == "DELETED" else self._store.see(found):
            self._notify(change)
        meta = found.meta if isinstance(found, Malformed) else found.metadata
        self._resume_at = meta.resource_version or self._resume_at

    def _notify(self, change: Change[T]) -> None:
        self._changes[change.type].inc()
        try:
            self.on_change(change)
        except Exception:
            # A defect of `on_change`. If it ended this watch, one object would hide all others.
            meta = change.object.metadata
            WATCH_ERRORS.labels(self.resource.plural).inc()
            _log.exception(
                "change not taken",
                resource=self.resource.plural,
                namespace=meta.namespace,
                name=meta.name,
            )

    def _report(self, found: Malformed) -> None:
        if not self._store.is_news(found):
            return
        WATCH_MALFORMED.labels(self.resource.plural).inc()
        _log.warning(
            "object malformed",
            resource=self.resource.plural,
            namespace=found.meta.namespace,
            name=found.meta.name,
            error=found.message,
        )
        if self.on_malformed is not None:
            self.on_malformed(found.meta, found.message)
