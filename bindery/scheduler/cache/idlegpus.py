"""The gangs whose GPUs are idle for longer than their queue allows; time alone changes them.

Owned by cluster.py. A gang that comes or goes counts as changed, so that its status is written.
"""

import math
from collections.abc import Iterator

from bindery.scheduler.model.idleness import idleness
from bindery.scheduler.model.jobs import JobKey, Uid
from bindery.scheduler.model.state import PlanState


class IdleGpus:
    """Fills `PlanState.idle`."""

    def __init__(self, state: PlanState) -> None:
        self._state = state
        self._pods: set[Uid] = set()
        """Pods that use none of their GPUs."""

    def note(self, uid: Uid) -> None:
        """Note a new state of the pod `uid`."""
        task = self._state.tasks.get(uid)
        if task is not None and task.idle_since < math.inf:
            self._pods.add(uid)
        else:
            self._pods.discard(uid)

    def forget(self, uid: Uid) -> None:
        """Forget a deleted pod."""
        self._pods.discard(uid)

    def renew(self, now: float) -> Iterator[JobKey]:
        """Judge the gangs at `now` (epoch seconds); yield the gangs with another idleness."""
        tasks = (self._state.tasks.get(uid) for uid in self._pods)
        keys = {task.job for task in tasks if task is not None}
        for key in sorted(keys | self._state.idle.keys()):
            job = self._state.jobs.get(key) if key in keys else None
            found = idleness(job, self._state.queues, now) if job is not None else None
            if found != self._state.idle.get(key):
                yield key
            if found is not None:
                self._state.idle[key] = found
            else:
                self._state.idle.pop(key, None)
