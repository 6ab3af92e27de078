"""Pending operations: one at a time for each key, with backoff after failures.

The caller starts an operation, carries it out, and reports how it ended. The clock is passed in.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bindery.nodecore.errors import NodeCoreError

INITIAL_BACKOFF_S: Final = 0.5
LONGEST_BACKOFF_S: Final = 122.0


@dataclass(frozen=True)
class OperationKey:
    """What an operation works on. An empty pod or node stands for every pod or node.

    Attributes:
        subject: the volume, or the socket of a plugin; empty if operations never conflict.
    """

    subject: str
    pod: str = ""
    node: str = ""

    def overlaps(self, other: "OperationKey") -> bool:
        """Return whether operations on both must not run at one time."""
        return (
            self.subject != ""
            and self.subject == other.subject
            and ("" in (self.pod, other.pod) or self.pod == other.pod)
            and ("" in (self.node, other.node) or self.node == other.node)
        )


class AlreadyPendingError(NodeCoreError):
    """An operation on the same key runs; the caller tries again in its next round."""

    def __init__(self, key: OperationKey) -> None:
        super().__init__(
            f"Failed to create operation with name {key}. "
            "An operation with that name is already executing."
        )


class BackoffError(NodeCoreError):
    """The operation has failed not long ago; the caller tries again in a later round."""

    def __init__(self, key: OperationKey, backoff: "Backoff") -> None:
        super().__init__(
            f'Failed to create operation with name "{key}". An operation with that name failed at '
            f"{backoff.failed_at_s}. No retries permitted until {backoff.retry_at_s} "
            f'({backoff.wait_s}s). Last error: "{backoff.error}".'
        )


@dataclass(frozen=True)
class Backoff:
    """How long an operation waits after failures in a row.

    Attributes:
        wait_s: how long it waits since then; 0 if it has not failed.
    """

    failed_at_s: float = 0.0
    wait_s: float = 0.0
    error: str = ""

    @property
    def retry_at_s(self) -> float:
        """When the operation may run again."""
        return self.failed_at_s + self.wait_s

    def is_over(self, now_s: float) -> bool:
        """Return whether the operation may run again."""
        return self.wait_s == 0 or now_s > self.retry_at_s

    def after(self, error: str, now_s: float) -> "Backoff":
        """Return the backoff after one more failure: twice as long, up to the longest."""
        wait_s = min(2 * self.wait_s, LONGEST_BACKOFF_S) if self.wait_s else INITIAL_BACKOFF_S
        return Backoff(now_s, wait_s, error)


@dataclass(eq=False)
class _Operation:
    key: OperationKey
    name: str
    place: int
    is_pending: bool = True
    backoff: Backoff = Backoff()


class PendingOperations:
    """Running operations, and failed operations that wait for their next attempt."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._operations: list[_Operation] = []
        self._of_subject: dict[str, set[_Operation]] = {}

    def start(self, key: OperationKey, name: str) -> None:
        """Record that an operation starts.

        Another kind of operation on the same key does not wait for the backoff of the failed one.

        Raises:
            AlreadyPendingError: an operation on the key runs.
            BackoffError: the same operation has failed not long ago.
        """
        found = self._find(key)
        if found is None:
            started = _Operation(key, name, len(self._operations))
            self._operations.append(started)
            self._of_subject.setdefault(key.subject, set()).add(started)
            return
        if found.is_pending:
            raise AlreadyPendingError(found.key)
        if not found.backoff.is_over(self._clock()):
            if found.name == name:
                raise BackoffError(key, found.backoff)
            found.name, found.backoff = name, Backoff()
        found.is_pending, found.key = True, key

    def finish(self, key: OperationKey, error: str | None = None) -> None:
        """Record how the operation on exactly this key ended; None is success."""
        found = next((one for one in self._of(key.subject) if one.key == key), None)
        if found is not None and error is None:
            self._forget(found)
        elif found is not None:
            found.is_pending = False
            found.backoff = found.backoff.after(str(error), self._clock())

    def _forget(self, operation: _Operation) -> None:
        """Remove an operation; the last one takes its place, as in the kubelet."""
        last = self._operations.pop()
        if last is not operation:
            self._operations[operation.place] = last
            last.place = operation.place
        beside = self._of_subject[operation.key.subject]
        beside.remove(operation)
        if not beside:
            del self._of_subject[operation.key.subject]

    def concerns(self, subject: str) -> bool:
        """Return whether an operation on the subject runs or waits for its next attempt."""
        return subject in self._of_subject

    def is_pending(self, key: OperationKey) -> bool:
        """Return whether an operation runs that overlaps `key`."""
        if not self.concerns(key.subject):
            return False
        found = self._find(key)
        return found is not None and found.is_pending

    def may_start(self, key: OperationKey, name: str) -> bool:
        """Return whether `start` would accept the operation."""
        found = self._find(key)
        if found is None:
            return True
        if found.is_pending:
            return False
        return found.name != name or found.backoff.is_over(self._clock())

    def _find(self, key: OperationKey) -> _Operation | None:
        """Return the operation that overlaps `key`: one that runs, else the exact one."""
        overlapping = [one for one in self._of(key.subject) if one.key.overlaps(key)]
        running = [one for one in overlapping if one.is_pending]
        exact = [one for one in overlapping if one.key == key]
        return next(iter([*running, *exact[-1:], *overlapping]), None)

    def _of(self, subject: str) -> list[_Operation]:
        """Return the operations on the subject in their order."""
        return sorted(self._of_subject.get(subject, ()), key=lambda one: one.place)
