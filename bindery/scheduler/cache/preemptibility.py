"""Whether pods may be evicted for others: bound pods stay what they were bound as.

Owned by tasks.py. A waiting pod is what its pod, PodGroup and PriorityClass ask for. A bound pod
counts as in its BindRequest, and then as in the binder's record. Later wishes of its owner take
effect in `settle`, when a cycle begins: towards preemptible always, towards non-preemptible
if the queue allows it. Without that, owners could pin pods that their queue has borrowed room for.
"""

from collections.abc import Iterator

from bindery.scheduler.cache.holds import Holds
from bindery.scheduler.cache.priorities import PriorityClasses
from bindery.scheduler.model.jobs import Job, Task, TaskStatus, Uid


class ChargedPreemptibility:
    """As what pods count. `trusts_records`: whether only Bindery can write the records on pods."""

    def __init__(self, classes: PriorityClasses, holds: Holds, *, trusts_records: bool) -> None:
        self._classes = classes
        self._holds = holds
        self._trusts_records = trusts_records
        self._known: dict[Uid, bool] = {}
        """Bound pod -> whether it is preemptible, as settled by this process or as it was bound."""
        self._unsettled: dict[Uid, None] = {}
        """Bound pods that ask for a change."""

    def of(self, job: Job, task: Task) -> bool:
        """Return whether `task` of `job` counts as preemptible; its status must be up to date."""
        if not task.status.holds_room:
            return self._classes.asks_preemptible(job, task)
        if task.status is TaskStatus.BINDING:
            hold = self._holds.get(task.uid)
            return hold.is_preemptible if hold is not None else task.is_preemptible
        known = self._known.get(task.uid, task.recorded_preemptible)
        if known is not None:
            return known
        # Nothing has checked a quota for a pod that Bindery has not bound.
        return self._trusts_records or self._classes.asks_preemptible(job, task)

    def note_binding(self, uid: Uid, before: Task | None, recorded: bool | None) -> None:
        """Note that the pod `uid` has a node and the record `recorded`; `before`: its old task."""
        if self._trusts_records:
            # A record that was changed is newer than what this process has settled.
            if recorded is not None and (before is None or before.recorded_preemptible != recorded):
                self._known.pop(uid, None)
            return
        hold = self._holds.get(uid)
        if hold is not None and uid not in self._known:
            self._known[uid] = hold.is_preemptible

    def note(self, job: Job, task: Task) -> None:
        """Note what `task` counts as, and whether its owner asks for something else."""
        task.is_preemptible = self.of(job, task)
        is_bound = task.status is TaskStatus.RUNNING
        if is_bound and task.is_preemptible != self._classes.asks_preemptible(job, task):
            self._unsettled[task.uid] = None
        else:
            self._unsettled.pop(task.uid, None)

    def unsettled(self) -> Iterator[Uid]:
        """Yield the bound pods that ask for a change, in a fixed order."""
        yield from sorted(self._unsettled)

    def settle(self, task: Task, *, is_preemptible: bool) -> None:
        """Let `task` count as asked from now on. The caller enters it again."""
        self._known[task.uid] = is_preemptible

    def is_to_record(self, task: Task) -> bool:
        """Return whether the record on the pod of `task` is not what the pod counts as."""
        known = self._known.get(task.uid)
        return known is not None and known != task.recorded_preemptible

    def forget(self, uid: Uid) -> None:
        """Forget a pod that has gone."""
        self._known.pop(uid, None)
        self._unsettled.pop(uid, None)
