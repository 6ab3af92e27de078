"""The gangs whose report changes without an event of theirs, as bound pods of them do not start.

Owned by cluster.py. A pod that has not started in time, and each change of a node's readiness,
makes the gangs concerned count as changed, so that their status is computed again.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from bindery.scheduler.model.jobs import JobKey, Task, Uid
from bindery.scheduler.model.starts import is_due


class Starting:
    """Bound pods whose containers do not run yet."""

    def __init__(self, tasks: Mapping[Uid, Task]) -> None:
        self._tasks = tasks
        self._young: set[Uid] = set()
        self.overdue: Final[set[Uid]] = set()
        """Bound pods that have not started in time."""

    def note(self, uid: Uid) -> None:
        """Note a new state of the pod `uid`."""
        task = self._tasks.get(uid)
        if task is not None and task.obstacle is not None and task.is_ours:
            if uid not in self.overdue:
                self._young.add(uid)
        else:
            self.forget(uid)

    def forget(self, uid: Uid) -> None:
        """Forget a deleted pod."""
        self._young.discard(uid)
        self.overdue.discard(uid)

    def late(self, now: float) -> Iterator[JobKey]:
        """Yield the jobs of pods that are late by `now`, once for each pod. Epoch seconds."""
        for uid in sorted(self._young):
            task = self._tasks.get(uid)
            if task is None or is_due(task, now):
                self._young.discard(uid)
            if task is not None and is_due(task, now):
                self.overdue.add(uid)
                yield task.job
