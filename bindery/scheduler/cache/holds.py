"""Holds: the places of unbound pods in BindRequests, and in commits that are being written.

A hold makes a pending pod count as Binding on its node. It ends when the request finishes without
binding the pod, or could not be created, and `LINGER_S` after it was deleted unfinished: its binder
learns of that later. A pod that is bound by its request keeps the hold until the pod itself shows
its node, as the two watches are not ordered.

Two schedulers may commit one pod in two requests, and two requests may carry the same Statement.
Each request has its own hold. The hold that counts follows from the requests alone, not from the
order of their events.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from bindery.kube.objects.bindrequests import CommittedStatement, StatementKey, StatementSpec
from bindery.scheduler.model.jobs import Uid

LINGER_S: Final = 5.0
"""Time for what a binder does before it learns that its request was deleted, in seconds."""
_MOST_COMMIT_DIGITS = 18
"""More digits than any count of commits has. Users may write a longer number into a request."""


class Carried(NamedTuple):
    """A Statement in one request."""

    statement: StatementKey
    request: str
    """The name of the request; "" while it is being written."""


def carried(statement: CommittedStatement) -> Carried:
    """Return the identity of `statement` with the name of its request."""
    return Carried(statement.key, statement.metadata.name)


@dataclass(frozen=True, slots=True)
class Hold:
    """One pod's place in a request."""

    node_name: str
    is_bound: bool = False
    """Whether the request's status has the pod as bound."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Plugin -> its data for the binder."""
    gpu_groups: tuple[str, ...] = ()
    """The GPU groups of the pod."""
    queue: str = ""
    """The queue that the request charges the pod to; "" if the request has none."""
    is_preemptible: bool = True
    """As what the request charges the pod."""
    pod_group: str = ""
    """The UID of the PodGroup of the request; "" for none."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """A commit that is being written. `since`: seconds since the epoch."""

    spec: StatementSpec
    since: float


class Holds:
    """The holds of pods, and the known Statements."""

    def __init__(self) -> None:
        self._by_pod: defaultdict[Uid, dict[Carried, Hold]] = defaultdict(dict)
        self._by_request: defaultdict[Carried, set[Uid]] = defaultdict(set)
        self._with_data: dict[Uid, None] = {}
        """The pods with plugin data in a hold, in the order in which these came; few pods have."""
        self.assumed: dict[StatementKey, Assumption] = {}
        """Commits whose request the watch has not shown yet."""
        self.statements: dict[Carried, CommittedStatement] = {}
        self._live: set[Carried] = set()
        """The Statements that are not finished."""
        self._lingering: dict[Carried, float] = {}
        """Statements that were deleted unfinished -> when their holds end, in epoch seconds."""
        self.settled: dict[Uid, Hold] = {}
        """Pod on a node -> its last hold, if that has plugin data.

        Objects that the binder wrote for the pod may arrive later by other watches."""

    @property
    def has_live(self) -> bool:
        """Whether a request is being written or is not finished."""
        return bool(self.assumed) or bool(self._live)

    def get(self, uid: Uid) -> Hold | None:
        """Return the hold that counts for the pod `uid`: a bound one first, then by name."""
        holds = self._by_pod.get(uid)
        return holds[_first(holds)] if holds else None

    def spec_for(self, uid: Uid) -> StatementSpec | None:
        """Return the spec of the request that holds the pod `uid`; None if there is none."""
        holds = self._by_pod.get(uid)
        if not holds:
            return None
        first = _first(holds)
        known = self.statements.get(first) or self.assumed.get(first.statement)
        return known.spec if known is not None else None

    def is_live(self, uid: Uid) -> bool:
        """Return whether a request that is not finished holds the pod `uid` and has not bound it.

        A request that is being written counts, one that was deleted does not.
        """
        return any(
            not hold.is_bound and (known in self._live or known.statement in self.assumed)
            for known, hold in self._by_pod.get(uid, {}).items()
        )

    def with_data(self) -> Iterator[tuple[Uid, Hold]]:
        """Yield the held pods with plugin data, each with the hold that counts."""
        for uid in self._with_data:
            hold = self.get(uid)
            if hold is not None:
                yield uid, hold

    def created(self, uid: Uid) -> str | None:
        """Return when the request was created that holds the pod `uid`; None if none is shown."""
        holds = self._by_pod.get(uid)
        known = self.statements.get(_first(holds)) if holds else None
        return known.metadata.creation_timestamp if known is not None else None

    def assume(self, statement: StatementKey, spec: StatementSpec, now: float) -> None:
        """Add holds for the pods of `statement`, which is about to be written."""
        self.assumed[statement] = Assumption(spec, now)
        self._replace(_assumed(statement), _holds(spec))

    def forget(self, statement: StatementKey) -> Iterable[Uid]:
        """End the holds of a Statement that could not be written; return its pods."""
        # The holds of requests that carry it stay: this or another scheduler has written them.
        self.assumed.pop(statement, None)
        return self._replace(_assumed(statement), {})

    def put(self, statement: CommittedStatement) -> Iterable[Uid]:
        """Add or update a Statement; return the pods whose hold may have changed."""
        known = carried(statement)
        self.statements[known] = statement
        self._lingering.pop(known, None)
        final, bound = statement.is_final, frozenset(statement.status.bound_pods)
        if final:
            self._live.discard(known)
        else:
            self._live.add(known)
        holds = _holds(statement.spec, bound)
        if final:
            holds = _bound(holds)
        changed = self._replace(known, holds)
        if statement.key not in self.assumed:
            return changed
        return sorted({*changed, *self.forget(statement.key)})

    def remove(self, statement: CommittedStatement, now_s: float) -> Iterable[Uid]:
        """Remove a Statement of a deleted request; return the pods that it no longer holds.

        Bound pods stay held until they show their node, and the pods of an unfinished Statement
        for `LINGER_S`. `now_s`: seconds since the epoch.
        """
        known = carried(statement)
        self.statements.pop(known, None)
        bound = frozenset(statement.status.bound_pods)
        holds = {
            uid: replace(self._by_pod[uid][known], is_bound=uid in bound)
            for uid in self._by_request.get(known, ())
        }
        if known in self._live:
            self._live.discard(known)
            self._lingering[known] = now_s + LINGER_S
            return self._replace(known, holds)
        return self._replace(known, _bound(holds))

    def expired(self, now_s: float) -> Iterator[Uid]:
        """Yield the pods that Statements of deleted requests no longer hold at `now_s`."""
        for known in [known for known, end_s in self._lingering.items() if end_s <= now_s]:
            del self._lingering[known]
            holds = {uid: self._by_pod[uid][known] for uid in self._by_request.get(known, ())}
            yield from self._replace(known, _bound(holds))

    def pod_gone(self, uid: Uid) -> None:
        """Remove the holds of a deleted pod, except an unfinished hold with GPU groups or data.

        The binder may still create reservation pods or allocate devices for it, so that hold ends
        with the request.
        """
        self.settled.pop(uid, None)
        hold = self.get(uid)
        if hold is None or hold.is_bound or not (hold.gpu_groups or hold.data):
            self.drop(uid)

    def settle(self, uid: Uid) -> None:
        """Remove the holds of a pod that shows its node."""
        hold = self.get(uid)
        if hold is not None and hold.data:
            self.settled[uid] = hold
        self.drop(uid)

    def drop(self, uid: Uid) -> None:
        """Remove the holds of a pod."""
        self._with_data.pop(uid, None)
        for request in self._by_pod.pop(uid, {}):
            self._by_request[request].discard(uid)
            if not self._by_request[request]:
                del self._by_request[request]

    def _replace(self, request: Carried, holds: Mapping[Uid, Hold]) -> list[Uid]:
        """Replace the holds of `request`; return the pods of the old and new holds."""
        before = self._by_request.pop(request, set())
        for uid in before - holds.keys():
            del self._by_pod[uid][request]
            if not self._by_pod[uid]:
                del self._by_pod[uid]
                self._with_data.pop(uid, None)
        for uid, hold in holds.items():
            self._by_pod[uid][request] = hold
            if hold.data:
                self._with_data[uid] = None
        if holds:
            self._by_request[request] = set(holds)
        return sorted(before | holds.keys())


def owner_and_commit(statement: str) -> tuple[Uid, int]:
    """Return owner and commit number from the id of a Statement; 0 if it has no such number."""
    owner, _, count = statement.rpartition("-")
    digits = count.partition(".")[0]  # the fencing token follows
    is_number = digits.isdecimal() and len(digits) <= _MOST_COMMIT_DIGITS
    return Uid(owner), int(digits) if is_number else 0


def _holds(spec: StatementSpec, bound: Collection[str] = ()) -> dict[Uid, Hold]:
    """Return the holds of the pods of a Statement, of which `bound` are bound."""
    return {
        Uid(pod.pod_uid): Hold(
            pod.selected_node,
            pod.pod_uid in bound,
            data=pod.plugin_data,
            gpu_groups=tuple(pod.selected_gpu_groups),
            queue=spec.queue,
            is_preemptible=not pod.non_preemptible,
            pod_group=spec.pod_group.uid if spec.pod_group is not None else "",
        )
        for pod in spec.pods
    }


def _bound(holds: Mapping[Uid, Hold]) -> dict[Uid, Hold]:
    return {uid: hold for uid, hold in holds.items() if hold.is_bound}


def _assumed(statement: StatementKey) -> Carried:
    return Carried(statement, "")


def _first(holds: Mapping[Carried, Hold]) -> Carried:
    """Return the request in `holds`, all of one pod, whose hold counts."""
    return min(holds, key=lambda request: (not holds[request].is_bound, request))
