"""Judges what binders and schedulers write: bindings, deletions, and writes without a Lease."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from bindery.api import gpushare
from bindery.api.names import FENCE_LABEL
from bindery.kube.objects.bindrequests import BindRequest
from tests.histories.apiserver.store import Change, ChangeType
from tests.histories.calm import Leaders
from tests.histories.plan import LATEST_S
from tests.recounting import ENDED

ON_ITS_WAY_S: Final = LATEST_S + 1.0
"""How long after the end of its term requests of a process may arrive."""


class _Holder(NamedTuple):
    """Who holds a Lease, until when at least, and the number of the term."""

    holder: str
    until_s: float
    token: int


class BindingJudge:
    """Knows requests, announcements and Leases from the log."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders
        self._holders: dict[str, _Holder] = {}
        """Name of each Lease -> who has written it last."""
        self._requests: dict[str, tuple[BindRequest, float]] = {}
        """UID of each stored request -> the request, and when it was created."""
        self._deleted: deque[tuple[float, BindRequest, float]] = deque()
        """Deleted requests, each with the moments of its deletion and creation."""
        self._announced: list[tuple[float, int]] = []
        """When a binder had read the announcement of a fencing token, and the token."""

    def problems(self, change: Change) -> Iterator[str]:
        """Take in a write; yield what it breaks."""
        if change.kind.plural == "leases":
            yield from self._lease(change)
        elif change.kind.plural == "bindrequests":
            yield from self._request(change)
        elif change.kind.plural == "pods":
            yield from self._pod(change)

    def created_s(self, pod: str) -> float | None:
        """Return when the oldest stored request for a pod, given by UID, was created."""
        return min(
            (at_s for found, at_s in self._requests.values() if pod in _pods(found)), default=None
        )

    def without_lease(self, caller: str, at_s: float) -> str:
        """Return that another process leads by now; empty if none does."""
        leader, since_s = self._leaders.of(caller.partition("-")[0]) or (caller, 0.0)
        if leader == caller or at_s <= since_s + ON_ITS_WAY_S:
            return ""
        return f"{at_s - since_s:.1f} s after {leader} leads"

    def _lease(self, change: Change) -> Iterator[str]:
        """Yield that a process takes a Lease that another holds, or begins no new term."""
        spec, name = change.version.object["spec"], change.key[1]
        holder, token = spec.get("holderIdentity") or "", spec.get("leaseTransitions") or 0
        known = self._holders.get(name)
        if not name.startswith("bindery-") or change.after is None:
            return
        if known is not None and holder and holder != known.holder:
            if change.at_s < known.until_s:
                text = f"{known.until_s - change.at_s:.1f} s too early"
                yield f"{holder} takes the Lease {name} from {known.holder} {text}"
            if token <= known.token:
                yield f"{holder} begins term {token} of {name} after term {known.token}"
        if not holder:  # released
            self._holders[name] = _Holder("", change.at_s, token)
        else:
            until_s = change.at_s + spec.get("leaseDurationSeconds", 0)
            self._holders[name] = _Holder(holder, until_s, token)

    def _request(self, change: Change) -> Iterator[str]:
        found = msgspec.json.decode(change.version.body, type=BindRequest)
        uid, caller = found.metadata.uid, change.writer.caller
        is_deletion = change.writer.verb == "delete"  # else a binder releases what others delete
        if is_deletion and caller.startswith("binder") and not found.is_final:
            yield f"{caller} deletes the unfinished request {found.metadata.name}"
        if change.type is ChangeType.DELETED:
            _, created_s = self._requests.pop(uid)
            self._deleted.append((change.at_s, found, created_s))
            return
        created_s = self._requests[uid][1] if uid in self._requests else change.at_s
        self._requests[uid] = found, created_s
        if FENCE_LABEL in found.metadata.labels and found.is_final:
            self._announced.append((change.at_s, found.spec.fencing_token))
        yield from self._tried_too_often(found)

    def _tried_too_often(self, found: BindRequest) -> Iterator[str]:
        """A gang that is bound in part is completed, however often that is tried."""
        specs = {each.id: each for each in found.spec.statements}
        for status in found.status.statements:
            if (
                status.failed_attempts <= found.spec.backoff_limit + 1
                or status.phase == "Succeeded"
            ):
                continue
            spec, (bound, pods) = specs[status.id], self._bound_of(status.id)
            if not 0 < bound < (pods if spec.min_bound is None else spec.min_bound):
                yield f"{found.metadata.name} is tried {status.failed_attempts} times"

    def _bound_of(self, statement: str) -> tuple[int, int]:
        """Return how many pods of a Statement are bound, and how many it has, in all its parts."""
        requests = [request for request, _ in self._requests.values()]
        return (
            sum(
                len(part.bound_pods)
                for request in requests
                for part in request.status.statements
                if part.id == statement
            ),
            sum(
                len(part.pods)
                for request in requests
                for part in request.spec.statements
                if part.id == statement
            ),
        )

    def _pod(self, change: Change) -> Iterator[str]:
        caller = change.writer.caller
        if change.writer.subresource == "binding" and caller.startswith("binder"):
            yield from self._binding(change)
        elif caller.startswith("binder") and change.before is not None and change.after is not None:
            yield from _taken_groups(change)
        if change.type is ChangeType.DELETED and caller.startswith(("binder", "scheduler")):
            meta, status = change.version.object["metadata"], change.version.object["status"]
            is_ours = gpushare.is_reservation(meta["namespace"], meta.get("labels") or {})
            is_evicted = change.writer.subresource == "eviction" and caller.startswith("scheduler")
            is_cleared = status.get("phase") in ENDED
            if not is_evicted and not is_cleared and not (is_ours and caller.startswith("binder")):
                yield f"{caller} deletes pod {meta['name']}"

    def _binding(self, change: Change) -> Iterator[str]:
        pod = change.version.object
        uid, name, node = pod["metadata"]["uid"], change.key[1], pod["spec"]["nodeName"]
        while self._deleted and self._deleted[0][0] < change.at_s - ON_ITS_WAY_S:
            self._deleted.popleft()
        known = [*self._requests.values(), *((each, at_s) for _, each, at_s in self._deleted)]
        asking = [(each, at_s) for each, at_s in known if _pods(each).get(uid) == node]
        if not asking:
            yield f"{name} is bound to {node} without a request"
            return
        if all(self._is_fenced(each, at_s) for each, at_s in asking):
            yield f"{name} is bound for a request of a scheduler that no longer leads"

    def _is_fenced(self, request: BindRequest, created_s: float) -> bool:
        """Whether a request came after a binder had read of a newer scheduler."""
        token = request.spec.fencing_token
        return any(at_s < created_s and newer > token for at_s, newer in self._announced)


def _taken_groups(change: Change) -> Iterator[str]:
    """Yield that a binder changes the GPU groups of a pod that is on a node."""
    assert change.before is not None, "it is a change"
    before, after = change.before.object, change.version.object
    old, new = (
        sorted(gpushare.groups(each["metadata"].get("labels") or {})) for each in (before, after)
    )
    if before["spec"].get("nodeName") and old != new:
        yield f"{change.writer.caller} takes GPU groups {old} from {change.key[1]}, which is bound"


def _pods(request: BindRequest) -> Mapping[str, str]:
    """Return the pods of a request, by UID, with their nodes."""
    return {pod.pod_uid: pod.selected_node for each in request.spec.statements for pod in each.pods}


def unused_now(change: Change, pods: Mapping[str, Any]) -> Iterator[str]:
    """Yield that a binder deletes the reservation of a GPU whose pods still run.

    `pods`: UID -> pod, of all that are on the node.
    """
    meta = change.version.object["metadata"]
    labels = meta.get("labels") or {}
    is_ours = gpushare.is_reservation(meta["namespace"], labels)
    if not is_ours or not change.writer.caller.startswith("binder"):
        return
    if change.version.object["status"].get("phase") in ENDED:
        return
    groups = set(gpushare.groups(labels))
    for pod in pods.values():
        is_user = not gpushare.is_reservation(pod.metadata.namespace, pod.metadata.labels)
        if is_user and groups & set(gpushare.groups(pod.metadata.labels)):
            yield f"the reservation {meta['name']} is deleted, and {pod.metadata.name} uses it"
