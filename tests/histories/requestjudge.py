"""Judges what schedulers, binders, the grouper and the agent send, before the API server sees it.

A request may arrive late, so it must name the object that it is meant for: by its name alone it
would reach a successor of that name.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from bindery.kube.http.requests import ApiRequest

_LED: Final = ("scheduler", "binder", "grouper")
"""Kinds of processes with a leader."""
_JUDGED: Final = (*_LED, "agent")
_KINDS: Final = frozenset(
    (
        "pods",
        "bindrequests",
        "podgroups",
        "queues",
        "resourceclaims",
        "persistentvolumeclaims",
        "persistentvolumes",
    )
)
_OF_LEADERS: Final = ("create pods/binding", "create pods/eviction", "create podgroups")
_WINDOW_S: Final = 5.0
_MOST: Final = 400
"""Requests of one process within a window; correct ones stay below 130."""


class RequestJudge:
    """Looks at every request that reaches the API server."""

    def __init__(self) -> None:
        self._tried: set[tuple[str, str]] = set()
        """Process, and UID of a pod whose eviction it has tried without effect."""
        self._sent_s: defaultdict[str, deque[float]] = defaultdict(deque)
        """Process -> the moments of its last requests."""

    def problems(self, request: ApiRequest, caller: str, at_s: float) -> Iterator[str]:
        """Yield what is wrong with a request."""
        if not caller.startswith(_JUDGED):
            return
        sent = self._sent_s[caller]
        sent.append(at_s)
        while sent[0] < at_s - _WINDOW_S:
            sent.popleft()
        if len(sent) > _MOST:
            text = f"{len(sent)} requests in {_WINDOW_S:.0f} s"
            yield f"{caller} sends {text}, such as {request.verb} {request.resource}"
        body = msgspec.json.decode(request.body) if request.body else {}
        if not isinstance(body, dict):
            return  # a JSON patch, which tests what it changes
        what = f"{caller}: {request.verb} {request.target.partition('?')[0]}"
        if request.resource == "pods/eviction":
            yield from self._eviction(body["deleteOptions"], caller, what)
        elif request.resource == "pods/binding":
            if not _named(body["metadata"], "uid"):
                yield f"{what} names no UID"
            if not _named(body["metadata"], "resourceVersion"):
                yield f"{what} names no version"
        elif request.verb in ("patch", "delete") and request.resource in _KINDS:
            named = body.get("preconditions" if request.verb == "delete" else "metadata") or {}
            if not _named(named, "uid") and not _named(named, "resourceVersion"):
                yield f"{what} names neither UID nor version"

    def _eviction(self, options: dict[str, Any], caller: str, what: str) -> Iterator[str]:
        uid = (options.get("preconditions") or {}).get("uid", "")
        if not uid:
            yield f"{what} names no UID"
        elif options.get("dryRun"):
            self._tried.add((caller, uid))
        elif (caller, uid) not in self._tried:
            yield f"{what} was not tried before"


def _named(meta: dict[str, Any], field: str) -> bool:
    return bool(meta.get(field))


def is_of_leader(request: ApiRequest, caller: str) -> bool:
    """Whether only the leader sends such a request. Late commits are fenced, and a late status
    names its version."""
    if not caller.startswith(_LED):
        return False
    return request.verb == "delete" or f"{request.verb} {request.resource}" in _OF_LEADERS
