"""Watches: queues of lines, filled by the writes of the watched kind."""

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from tests.histories.apiserver.calls import Call
from tests.histories.apiserver.refusals import expired
from tests.histories.apiserver.selectors import Matches, everything, selection
from tests.histories.apiserver.store import Change, ChangeType, Store, event_line


class Watch:
    """One open watch. `lines` has what was sent and not yet taken; `close` ends it.

    `wake` is called after each new line, if it is set. Whoever delays lines takes them from
    `lines` and passes them on later.
    """

    def __init__(self, store: Store, call: Call) -> None:
        """Open it; a version that is too old becomes an ERROR line, as in Kubernetes."""
        kind, options = call.place.kind, call.options
        self.kind = kind
        self.caller = call.caller
        self.partial = call.partial
        self.with_bookmarks = options.get("allowWatchBookmarks") == "true"
        self.timeout_s = float(options.get("timeoutSeconds") or _TIMEOUT_S)
        self.lines: deque[bytes] = deque()
        self.wake: Callable[[], None] | None = None
        self.is_open = True
        self._store = store
        self._namespace = call.place.namespace
        self._matches: Matches = selection(
            kind, options.get("fieldSelector", ""), options.get("labelSelector", "")
        )
        self._collection = store.of(kind)
        self._begin(options.get("resourceVersion", ""))

    def close(self) -> None:
        """End the watch."""
        if self.is_open:
            self.is_open = False
            self._collection.watches.remove(self._take)

    def bookmark(self) -> None:
        """Send a bookmark, if the watch wants bookmarks."""
        if self.with_bookmarks and self.is_open:
            meta = {"resourceVersion": str(self._store.revision), "creationTimestamp": None}
            body = {
                "kind": self.kind.name,
                "apiVersion": self.kind.api_version,
                "metadata": meta,
            }
            if self.partial:
                body |= {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            self._send(event_line("BOOKMARK", msgspec.json.encode(body)))

    def _begin(self, version: str) -> None:
        if version in ("", "0"):
            for _, stored in self._collection.ordered(self._store.revision, self._namespace):
                if self._matches(stored.object):
                    body = stored.partial if self.partial else stored.body
                    self.lines.append(event_line("ADDED", body))
        else:
            revision = int(version)
            if revision < self._store.compacted:
                text = f"too old resource version: {revision} ({self._store.compacted})"
                status = msgspec.json.encode(expired(text).status)
                self.lines.append(event_line("ERROR", status))
                self.is_open = False
                return
            for change in self._collection.since(revision):
                self._take(change)
        self._collection.watches.append(self._take)

    def _take(self, change: Change) -> None:
        if self._namespace and change.key[0] != self._namespace:
            return
        if self._matches is everything:
            self._send(change.line(change.type, partial=self.partial))
            return
        was = change.before is not None and self._matches(change.before.object)
        matches = change.type is not ChangeType.DELETED and self._matches(change.version.object)
        if matches:
            type_ = ChangeType.MODIFIED if was else ChangeType.ADDED
            self._send(change.line(type_, partial=self.partial))
        elif was:
            self._send(change.line_of_lost(partial=self.partial))

    def _send(self, line: bytes) -> None:
        self.lines.append(line)
        if self.wake is not None:
            self.wake()


_TIMEOUT_S: Final = 1800.0
