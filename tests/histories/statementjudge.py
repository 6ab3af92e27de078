"""Judges how Statements are carried out: announced, prepared, tried again, given up, deleted."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from bindery.api import gpushare
from bindery.api.bindrequest import BindFailureReason, Phase
from bindery.api.names import FENCE_LABEL
from bindery.api.times import seconds
from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement, StatementKey
from bindery.kube.objects.claims import RESOURCE_CLAIMS
from bindery.kube.objects.watched import Pod
from tests.histories.apiserver.store import Change, ChangeType
from tests.histories.plan import LATEST_S, PROCESSES, QUIET_AFTER_S, FaultKind, Plan

_SHORTEST_PAUSE_S: Final = 0.3
"""From the arrival of a failed attempt to the next one: the binder waits 0.8 s from its writing."""
_BEHIND_S: Final = QUIET_AFTER_S * 0.3 + 10
_HIDE_DELETIONS: Final = frozenset(FaultKind) - {FaultKind.JUMP, FaultKind.DELAY, FaultKind.KILL}


_NOT_OF_A_PLUGIN: Final = frozenset(BindFailureReason) - {
    BindFailureReason.PLUGIN_FAILED,
    BindFailureReason.BIND_FAILED,
}


class StatementJudge:
    """Knows BindRequests, and what was prepared for pods, from the log."""

    def __init__(self, plan: Plan) -> None:
        self._skew_s = dict(zip(PROCESSES, plan.skew_s, strict=True))
        troubled = tuple(f.process for f in plan.faults if f.kind is not FaultKind.KILL)
        self._calm = {name for name in PROCESSES if not name.startswith(troubled)}
        """Processes whose writes arrive at once, and whose clocks do not jump."""
        self._token = 0
        """The newest announced fencing token."""
        self._requests: dict[str, BindRequest] = {}
        """UID -> each stored request."""
        self._failed: dict[StatementKey, int] = {}
        """Statement -> its failed attempts."""
        self._withdrawn: dict[StatementKey, tuple[float, bool]] = {}
        """Withdrawn Statement -> since when, and whether one of its pods was bound before."""
        self._bound: set[str] = set()
        """UIDs of all pods that were ever bound."""
        self._prepared: defaultdict[str, set[str]] = defaultdict(set)
        """UID of a pod -> the GPU groups and claims that were ever prepared for it."""
        self._given: set[str] = set()
        """GPU groups whose reservation was ever given a GPU."""
        self._reserved: set[str] = set()
        """Claims that were ever reserved."""
        self._gone_s: dict[str, float] = {}
        """UID of a pod that is deleted -> since when."""
        late = {fault.kind for fault in plan.faults if fault.process.startswith("binder")}
        self._behind_s = _BEHIND_S if late & _HIDE_DELETIONS else LATEST_S + 2.0
        """How long a binder may not know of a deletion when it binds."""
        self._claims: dict[str, str] = {}
        """UID of a pod -> its devices' claim that was seen last."""

    def problems(self, change: Change) -> Iterator[str]:
        """Take in a write; yield what it breaks."""
        match change.kind.plural:
            case "bindrequests":
                yield from self._request(change)
            case "resourceclaims":
                claim = RESOURCE_CLAIMS.decode(change.version.body)
                for user in claim.status.reserved_for:
                    self._prepared[user.uid].add(claim.metadata.name)
                    self._reserved.add(claim.metadata.name)
            case "pods":
                yield from self._pod(change)

    # -- requests --------------------------------------------------------------------------------

    def _request(self, change: Change) -> Iterator[str]:
        found = msgspec.json.decode(change.version.body, type=BindRequest)
        name, caller = found.metadata.name, change.writer.caller
        if change.writer.verb == "delete" and caller.startswith("binder"):
            yield from self._deletion(found, caller)
        if change.type is ChangeType.DELETED:
            self._requests.pop(found.metadata.uid, None)
            return
        if change.type is ChangeType.ADDED:
            if FENCE_LABEL in found.metadata.labels:
                self._token = max(self._token, found.spec.fencing_token)
            elif found.spec.fencing_token > self._token:
                yield f"{caller} commits {name} before it has announced its term"
        self._requests[found.metadata.uid] = found
        for statement in found.each():
            if statement.is_withdrawn:
                has_begun = any(pod.pod_uid in self._bound for pod in statement.spec.pods)
                self._withdrawn.setdefault(statement.key, (change.at_s, has_begun))
            yield from self._attempt(statement, change)

    def _deletion(self, gone: BindRequest, caller: str) -> Iterator[str]:
        """Yield that a binder deletes a part of a Statement whose other parts have not ended."""
        ids = {(statement.metadata.namespace, statement.spec.id) for statement in gone.each()}
        for statement in self._statements():
            is_open = not statement.is_final and not statement.metadata.deletion_timestamp
            if is_open and (statement.metadata.namespace, statement.spec.id) in ids:
                other = statement.metadata.name
                yield f"{caller} deletes {gone.metadata.name}, and {other} has no outcome"

    def _attempt(self, statement: CommittedStatement, change: Change) -> Iterator[str]:
        number, caller = statement.status.failed_attempts, change.writer.caller
        if number <= self._failed.get(statement.key, 0):
            return
        self._failed[statement.key] = number
        status = statement.status
        # Tried further: a gang of which a pod is bound or may be, or of which one was not read.
        is_known = status.phase == Phase.PENDING and status.reason not in _NOT_OF_A_PLUGIN
        if is_known and number > statement.backoff_limit:
            yield f"{statement.metadata.name} is tried again after {number} attempts"
        next_s = seconds(statement.status.next_attempt_time)
        if statement.is_final or next_s is None or caller not in self._calm:
            return
        pause_s = next_s - change.at_s - self._skew_s[caller]
        if pause_s < _SHORTEST_PAUSE_S:
            yield f"{statement.metadata.name} is tried again after {pause_s:.2f} s"

    def _statements(self) -> Iterator[CommittedStatement]:
        for request in self._requests.values():
            yield from request.each()

    # -- pods ------------------------------------------------------------------------------------

    def _pod(self, change: Change) -> Iterator[str]:
        pod = msgspec.json.decode(change.version.body, type=Pod)
        uid = pod.metadata.uid
        groups = gpushare.groups(pod.metadata.labels)
        self._prepared[uid].update(groups)
        if gpushare.INDEX_ANNOTATION in pod.metadata.annotations:
            self._given.update(groups)
        for claim in _claims_of(pod):
            self._claims[uid] = claim
        is_bound = change.writer.subresource == "binding" and change.type is ChangeType.MODIFIED
        if is_bound and change.writer.caller.startswith("binder") and uid not in self._bound:
            yield from self._binding(pod, change.at_s)
        if pod.spec.node_name:
            self._bound.add(uid)
        if change.type is ChangeType.DELETED or pod.metadata.deletion_timestamp is not None:
            self._gone_s.setdefault(uid, change.at_s)

    def _binding(self, pod: Pod, at_s: float) -> Iterator[str]:
        """Yield whether a pod is bound that was given up, or before its gang is prepared."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        is_share = gpushare.FRACTION_ANNOTATION in pod.metadata.annotations
        if is_share and not gpushare.groups(pod.metadata.labels):
            yield f"{pod.metadata.name} is bound without a GPU group"
        asking = [
            statement
            for statement in self._statements()
            if any(
                each.pod_uid == uid and each.selected_node == node for each in statement.spec.pods
            )
        ]
        if asking and all(_gives_up(statement, uid) for statement in asking):
            yield f"{pod.metadata.name} is bound after {asking[0].metadata.name} has given it up"
        if asking and all(self._is_withdrawn(statement, at_s) for statement in asking):
            yield f"{pod.metadata.name} is bound for {asking[0].spec.id}, which was withdrawn"
        for statement in asking:
            if _gives_up(statement, uid):
                continue  # an earlier request for the same node
            parts = [each for each in self._statements() if each.spec.id == statement.spec.id]
            yield from self._unprepared(pod, parts, at_s)

    def _is_withdrawn(self, statement: CommittedStatement, at_s: float) -> bool:
        """Whether a binder has known for long that the Statement must not begin."""
        since_s, has_begun = self._withdrawn.get(statement.key, (at_s, True))
        return not has_begun and since_s < at_s - self._behind_s

    def _unprepared(self, pod: Pod, parts: list[CommittedStatement], at_s: float) -> Iterator[str]:
        pods = [each for part in parts for each in part.spec.pods]
        if any(each.pod_uid in self._bound for each in pods):
            return  # the others follow
        minimum = parts[0].spec.min_bound
        needed = len(pods) if minimum is None else min(minimum, len(pods))
        lacking = [
            each.pod_name
            for each in pods
            if not self._is_prepared(each.pod_uid, each.selected_gpu_groups)
            or self._gone_s.get(each.pod_uid, at_s) < at_s - self._behind_s
        ]
        if len(pods) - len(lacking) < needed:
            text = f"{', '.join(lacking)} of its gang are gone or not prepared"
            yield f"{pod.metadata.name} is bound, and {text}"

    def _is_prepared(self, uid: str, groups: Iterable[str]) -> bool:
        """Whether the pod had its GPU groups and devices at some time."""
        had, claim = self._prepared[uid] & (self._given | self._reserved), self._claims.get(uid)
        return had.issuperset(groups) and (claim is None or claim in had)


def _claims_of(pod: Pod) -> Iterator[str]:
    made: Mapping[str, str | None] = {
        each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses or ()
    }
    for entry in pod.spec.resource_claims or ():
        name = entry.resource_claim_name or made.get(entry.name)
        if name:
            yield name


def _gives_up(statement: CommittedStatement, uid: str) -> bool:
    return statement.is_final and any(each.pod_uid == uid for each in statement.status.unbound_pods)
