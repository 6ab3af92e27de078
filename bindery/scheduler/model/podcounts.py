"""How many pods of each shape exist, by the day of their creation.

Written by cache/tasks.py. Plugins derive the typical workload from it. It is a function of the
existing pods, so a new leader has the same counts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from bindery.scheduler.model.jobs import Task
from bindery.scheduler.model.shapes import Shape

_DAY_LENGTH = len("2026-01-31")


class PodCounts:
    """Counts the pods of this scheduler and its node pool in any state, ended pods included."""

    def __init__(self) -> None:
        self._by_day: dict[str, Counter[Shape]] = {}
        self.version = 0
        """Grows with each change."""

    @property
    def by_day(self) -> Mapping[str, Mapping[Shape, int]]:
        """Day of creation (`2026-01-31`, UTC; "" if not known) -> shape -> number of pods."""
        return self._by_day

    def add(self, task: Task) -> None:
        """Count `task`."""
        if task.is_ours and task.is_of_pool:
            self._by_day.setdefault(task.created[:_DAY_LENGTH], Counter())[task.shape] += 1
            self.version += 1

    def remove(self, task: Task) -> None:
        """Undo `add`; the shape and creation time of `task` must be the same."""
        if not (task.is_ours and task.is_of_pool):
            return
        day = task.created[:_DAY_LENGTH]
        counts = self._by_day[day]
        counts[task.shape] -= 1
        if not counts[task.shape]:
            del counts[task.shape]
            if not counts:
                del self._by_day[day]
        self.version += 1

    def recount(self, tasks: Iterable[Task]) -> None:
        """Replace all counts by those of `tasks`."""
        self._by_day.clear()
        self.version += 1
        for task in tasks:
            self.add(task)
