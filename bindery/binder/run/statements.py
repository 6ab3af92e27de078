"""Assembles Statements from their parts, and validates them.

A Statement that is too large for one BindRequest comes in several, which share its `id`;
`statements.manager` shows every part to `Gatherings` and begins when all parts have come. Pure
memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from bindery.api.bindrequest import BindFailureReason, Phase
from bindery.binder.outcome.outcome import PodFailure, Wait, WaitReason
from bindery.kube.objects.bindrequests import CommittedStatement, StatementSpec


@dataclass
class Gathering:
    """The parts of one Statement that have come so far."""

    count: int
    """How many parts there are."""
    parts: dict[int, CommittedStatement] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether all parts have come."""
        return len(self.parts) == self.count

    @property
    def is_ready(self) -> bool:
        """Whether there is nothing to wait for: all have come, or none will be bound."""
        return self.is_complete or any(part.is_withdrawn for part in self.parts.values())

    @property
    def is_final(self) -> bool:
        """Whether the binder will do no more for any of the parts that have come."""
        return all(part.is_final for part in self.parts.values())

    def in_order(self) -> list[CommittedStatement]:
        """Return the parts in order."""
        return [self.parts[number] for number in sorted(self.parts)]


class Gatherings:
    """The Statements in several parts of which at least one is known."""

    def __init__(self) -> None:
        self._gatherings: dict[tuple[str, str], Gathering] = {}  # namespace, statement id

    def add(self, statement: CommittedStatement) -> Gathering:
        """Take in a part, or its newer state; return what has come of its Statement."""
        spec = statement.spec
        identity = (statement.metadata.namespace, spec.id)
        gathering = self._gatherings.setdefault(identity, Gathering(spec.parts))
        gathering.parts[spec.part] = statement
        return gathering

    def other_carrier(self, statement: CommittedStatement) -> CommittedStatement | None:
        """Return the same part of the same Statement in another request, if any."""
        spec = statement.spec
        gathering = self._gatherings.get((statement.metadata.namespace, spec.id))
        known = gathering.parts.get(spec.part) if gathering else None
        return known if known and known.metadata.name != statement.metadata.name else None

    def drop(self, statement: CommittedStatement) -> None:
        """Forget a part that is gone."""
        spec = statement.spec
        identity = (statement.metadata.namespace, spec.id)
        gathering = self._gatherings.get(identity)
        known = gathering.parts.get(spec.part) if gathering else None
        if gathering and known and known.metadata.uid == statement.metadata.uid:
            del gathering.parts[spec.part]
            if not gathering.parts:
                del self._gatherings[identity]

    def refresh(self, statement: CommittedStatement) -> None:
        """Take in the state in which a Run leaves a part, unless a newer spec has come."""
        gathering = self.of(statement)
        known = gathering.parts.get(statement.spec.part) if gathering else None
        if gathering is None or known is None or known.metadata.uid != statement.metadata.uid:
            return
        if known.metadata.generation <= statement.metadata.generation:
            gathering.parts[statement.spec.part] = statement

    def of(self, statement: CommittedStatement) -> Gathering | None:
        """Return what has come of the Statement of a part; None if it is not known."""
        return self._gatherings.get((statement.metadata.namespace, statement.spec.id))

    def wait(self, statement: CommittedStatement) -> Wait | None:
        """Return which parts `statement` waits for; None if all have come."""
        spec = statement.spec
        gathering = self._gatherings.get((statement.metadata.namespace, spec.id))
        if gathering is None or gathering.is_complete:
            return None
        text = f"{len(gathering.parts)} of the {gathering.count} parts of its Statement exist"
        return Wait(WaitReason.WAITS_FOR_PARTS, text)

    def has_open_part(self, namespace: str, statement_id: str) -> bool:
        """Whether a part of the Statement still waits for its outcome."""
        gathering = self._gatherings.get((namespace, statement_id))
        return gathering is not None and not gathering.is_final


def problem_of(statement: CommittedStatement) -> str:
    """Return why the Statement, or part of one, makes no sense by itself; "" if it does."""
    spec = statement.spec
    if not spec.pods:
        return "pods is empty"
    if spec.part >= spec.parts:
        return f"part {spec.part} of {spec.parts} does not exist"
    if spec.after == spec.id:
        return "the Statement names itself as its prerequisite"
    return _problem_of_pods([statement])


def problem_of_parts(parts: list[CommittedStatement]) -> str:
    """Return why the parts do not go together; "" if they do."""
    first = _common(parts[0].spec)
    if any(_common(part.spec) != first for part in parts[1:]):
        return "the parts of the Statement disagree on parts, after or minBound"
    return _problem_of_pods(parts)


def _common(spec: StatementSpec) -> tuple[int, str | None, int | None]:
    """Return the fields in which all parts of a Statement must agree."""
    return spec.parts, spec.after, spec.min_bound


def _problem_of_pods(parts: Iterable[CommittedStatement]) -> str:
    seen: set[str] = set()
    for part in parts:
        for pod in part.spec.pods:
            if not (pod.pod_name and pod.pod_uid and pod.selected_node):
                return f"pod {pod.pod_name!r} has no name, UID or node"
            if pod.pod_uid in seen:
                return f"pod {pod.pod_name} ({pod.pod_uid}) is named twice"
            seen.add(pod.pod_uid)
    return ""


def settled_refusals(parts: Iterable[CommittedStatement]) -> dict[str, PodFailure]:
    """Return which pods must stay unbound because a part has its final status already.

    A binder that dies between the status writes of two parts leaves such Statements: the other
    parts get the same outcome.
    """
    parts = list(parts)
    refusals: dict[str, PodFailure] = {}
    for part in (each for each in parts if each.is_final):
        status = part.status
        if status.phase == Phase.FAILED:
            failure = PodFailure(
                status.reason or BindFailureReason.PART_GONE, status.message, permanent=True
            )
            refusals.update((pod.pod_uid, failure) for each in parts for pod in each.spec.pods)
        for pod in status.unbound_pods:
            refusals[pod.pod_uid] = PodFailure(pod.reason, pod.message, permanent=True)
    return refusals
