"""Committed Statements that wait to be written. Pure; used by writer.py.

The Statements that the next request carries are of one namespace and in the order of their commits.
A Statement is written after its prerequisite, or in the same request. So if the binder does not
find a prerequisite, it is gone, not late.
"""

from collections.abc import Collection
from typing import NamedTuple

from bindery.scheduler.commit.drafts import StatementDraft

MOST_PODS = 100
"""Maximum number of pods in a request with several Statements.

The binder writes the status of a request each second until all its Statements have ended, so one
that takes several seconds costs more than several small ones. Fifty pods already save nearly all
that there is to save."""

Parts = tuple[StatementDraft, ...]
"""All parts of a Statement; mostly one."""


class StatementId(NamedTuple):
    """Identifies a Statement with all its parts."""

    namespace: str
    id: str


def identity(draft: StatementDraft) -> StatementId:
    """Return the identity of the Statement of `draft`."""
    return StatementId(draft.namespace, draft.spec.id)


def prerequisite(draft: StatementDraft) -> StatementId | None:
    """Return the identity of the prerequisite of `draft`; None if it has none."""
    after = draft.spec.after
    return StatementId(draft.namespace, after) if after is not None else None


class Backlog:
    """Statements by namespace. Namespaces are served in turns."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Parts]] = {}
        """Namespace -> its Statements in order; the first namespace is served next."""
        self._ids: set[StatementId] = set()

    def __contains__(self, statement: StatementId) -> bool:
        return statement in self._ids

    def add(self, parts: Parts) -> None:
        """Add a Statement."""
        self._waiting.setdefault(parts[0].namespace, []).append(parts)
        self._ids.add(identity(parts[0]))

    def take(self, being_written: Collection[StatementId], most_statements: int) -> list[Parts]:
        """Remove and return the Statements of the next request; a split Statement is alone.

        `being_written`: Statements of requests that are not written yet. A Statement that builds on
        one of them is not returned, because it must be written later.
        """
        for namespace, waiting in list(self._waiting.items()):
            chosen, left = self._choose(waiting, being_written, most_statements)
            if chosen:
                self._ids.difference_update(identity(parts[0]) for parts in chosen)
                del self._waiting[namespace]
                if left:
                    self._waiting[namespace] = left  # behind the other namespaces
                return chosen
        return []

    def drop_followers(self, refused: Collection[StatementId]) -> list[Parts]:
        """Remove and return the Statements that build on one of `refused`, directly or not."""
        lost, dropped = set(refused), []
        for namespace in {statement.namespace for statement in refused}:
            left = []
            for parts in self._waiting.get(namespace, ()):
                if prerequisite(parts[0]) in lost:
                    lost.add(identity(parts[0]))
                    dropped.append(parts)
                else:
                    left.append(parts)
            if left:
                self._waiting[namespace] = left  # in its place among the namespaces
            else:
                self._waiting.pop(namespace, None)
        self._ids.difference_update(lost)
        return dropped

    def clear(self) -> list[Parts]:
        """Remove and return all Statements."""
        everything = [parts for waiting in self._waiting.values() for parts in waiting]
        self._waiting.clear()
        self._ids.clear()
        return everything

    def _choose(
        self, waiting: list[Parts], being_written: Collection[StatementId], most_statements: int
    ) -> tuple[list[Parts], list[Parts]]:
        """Return the Statements of the next request, and the others in their order."""
        chosen: list[Parts] = []
        left: list[Parts] = []
        ids: set[StatementId] = set()
        pods = 0
        for position, parts in enumerate(waiting):
            before = prerequisite(parts[0])
            if before in being_written or (before in self._ids and before not in ids):
                left.append(parts)
                continue
            pods += sum(len(part.spec.pods) for part in parts)
            is_full = len(chosen) == most_statements or pods > MOST_PODS or len(parts) > 1
            if chosen and (is_full or parts[0].annotations != chosen[0][0].annotations):
                return chosen, left + waiting[position:]
            chosen.append(parts)
            ids.add(identity(parts[0]))
            if len(parts) > 1:
                return chosen, left + waiting[position + 1 :]
        return chosen, left
