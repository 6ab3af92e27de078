"""Judges what becomes of commits: complete or taken back, and ended when their pods are gone.

Time counts only while a scheduler that is calm leads.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from bindery.kube.objects.bindrequests import BindRequest, CommittedStatement
from tests.histories.apiserver.store import Change, ChangeType
from tests.histories.calm import Calm, Leaders
from tests.histories.plan import FaultKind, Plan

_COMPLETE_WITHIN_S: Final = 12.0
"""Time for the parts of one Statement: their creation takes less than a second."""
_ENDED_WITHIN_S: Final = 40.0
"""Time to end a Statement without pods: 5 s until a scheduler judges a request, 20 s between two
cycles while nothing changes, 5 s between two clocks, and some more."""
_RECOVERS_S: Final = 35.0
"""The longest pause of a watch after failures, and a moment."""
_Statement = tuple[str, str]
"""Namespace and id of a Statement."""


@dataclass
class _Commit:
    """A Statement that is being written. `since_s`: the creation of its first part."""

    caller: str
    since_s: float
    parts: int
    stored: set[int] = field(default_factory=set)
    is_going: bool = False
    """Whether a part is deleted, and stays until a binder has rolled back."""


class CommitJudge:
    """Knows the stored Statements and the pods that are gone, from the log."""

    def __init__(self, plan: Plan, leaders: Leaders) -> None:
        self._calm, self._leaders = Calm(plan), leaders
        self._incomplete: dict[_Statement, _Commit] = {}
        self._given_up: set[_Statement] = set()
        """Statements that lost a part before all were stored."""
        self._open: dict[str, tuple[CommittedStatement, ...]] = {}
        """UID of a request -> its Statements without an outcome or withdrawal."""
        self._gone_s: dict[str, float] = {}
        """UID of a deleted pod -> since when."""

    def problems(self, change: Change) -> Iterator[str]:
        """Take in a write; yield what is late by now."""
        match change.kind.plural:
            case "bindrequests":
                self._request(change)
            case "pods" if change.type is ChangeType.DELETED:
                self._gone_s[change.version.object["metadata"]["uid"]] = change.at_s
        yield from self._half_written(change.at_s)
        yield from self._without_pods(change.at_s)

    def _request(self, change: Change) -> None:
        found = msgspec.json.decode(change.version.body, type=BindRequest)
        uid, is_gone = found.metadata.uid, change.type is ChangeType.DELETED
        self._open[uid] = tuple(
            each for each in found.each() if not each.is_final and not each.is_withdrawn
        )
        if is_gone or found.metadata.deletion_timestamp or not self._open[uid]:
            del self._open[uid]
        for each in found.each():
            if each.spec.parts > 1:
                self._part(each, change)

    def _part(self, part: CommittedStatement, change: Change) -> None:
        key = part.metadata.namespace, part.spec.id
        known = self._incomplete.get(key)
        if change.type is ChangeType.ADDED and key not in self._given_up:
            if known is None:
                known = _Commit(change.writer.caller, change.at_s, part.spec.parts)
                self._incomplete[key] = known
            known.stored.add(part.spec.part)
            if len(known.stored) == known.parts:
                del self._incomplete[key]
        elif known is not None and (change.type is ChangeType.DELETED or part.is_final):
            # It is being taken back, or people have deleted a part: the others may still arrive.
            del self._incomplete[key]
            self._given_up.add(key)
        elif known is not None and part.metadata.deletion_timestamp is not None:
            known.is_going = True

    def _half_written(self, now_s: float) -> Iterator[str]:
        """Yield the Statements whose scheduler neither completes them nor takes them back."""
        for (_, name), commit in self._incomplete.items():
            leader = self._leaders.of("scheduler")
            if now_s < commit.since_s + _COMPLETE_WITHIN_S or leader is None:
                continue
            is_calm = self._calm.is_calm(
                commit.caller, commit.since_s, now_s, recovers_s=5.0, besides={FaultKind.REFUSE}
            )
            if commit.is_going and not self._has_quick_binder(commit.since_s, now_s):
                continue
            if is_calm and leader[0] == commit.caller and leader[1] < commit.since_s:
                text = f"{len(commit.stored)} of {commit.parts} parts for {_COMPLETE_WITHIN_S} s"
                yield f"{commit.caller} leaves Statement {name} with {text}"

    def _has_quick_binder(self, since_s: float, now_s: float) -> bool:
        """Whether the requests of the binder that rolls back are not slow."""
        binder = self._leaders.of("binder")
        others = frozenset(FaultKind) - {FaultKind.DELAY}
        return binder is not None and self._calm.is_calm(
            binder[0], since_s, now_s, recovers_s=5.0, besides=others
        )

    def _without_pods(self, now_s: float) -> Iterator[str]:
        """Yield the Statements that are left although all of their pods are gone."""
        for statements in self._open.values():
            for statement in statements:
                gone_s = [self._gone_s.get(pod.pod_uid, now_s) for pod in statement.spec.pods]
                since_s = max(gone_s, default=now_s)
                leader = self._leaders.of("scheduler")
                if now_s < since_s + _ENDED_WITHIN_S or leader is None:
                    continue
                if leader[1] < since_s and self._calm.is_calm(
                    leader[0], since_s, now_s, recovers_s=_RECOVERS_S
                ):
                    text = f"has no pods for {_ENDED_WITHIN_S} s, and is not withdrawn"
                    yield f"Statement {statement.spec.id} of {statement.metadata.name} {text}"
