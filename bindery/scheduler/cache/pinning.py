"""Lets bound pods become preemptible or non-preemptible, as their owners ask.

Called by cluster.py when a cycle begins. Becoming preemptible is free. Non-preemptible pods must
fit the quota of their queue and of those above it, and the rules of these queues must allow them,
as when such pods are placed. The pods of a job in one queue change together, or none does. The
owner gets one event about a refusal; the pods are tried again in each cycle.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from bindery.scheduler.cache.access import refusal_of_pins
from bindery.scheduler.cache.namespaces import Namespaces
from bindery.scheduler.cache.priorities import PriorityClasses
from bindery.scheduler.cache.tasks import TaskStore
from bindery.scheduler.model.holdings import is_elastic
from bindery.scheduler.model.jobs import JobKey, Task
from bindery.scheduler.model.pinned_quota import PinnedQuota
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.shapes import Shape
from bindery.scheduler.model.state import PlanState

Report = Callable[[Task, str, str], None]
"""Reports reason and text to the owner of a pod."""


class Pinning:
    """Changes what bound pods count as."""

    def __init__(
        self,
        state: PlanState,
        tasks: TaskStore,
        classes: PriorityClasses,
        namespaces: Namespaces,
        report: Report,
    ) -> None:
        self._state, self._tasks = state, tasks
        self._classes, self._namespaces = classes, namespaces
        self._report = report
        self._told: set[JobKey] = set()
        """Jobs with an event about the refusal of their present wish."""

    def settle(self) -> None:
        """Let all bound pods count as asked, as far as their queues allow."""
        to_free: list[Task] = []
        to_pin: defaultdict[tuple[JobKey, int], list[Task]] = defaultdict(list)
        for uid in self._tasks.preemptibility.unsettled():
            task = self._state.tasks.get(uid)
            # Objects come in any order: a PodGroup or class that is not known asks for nothing.
            if task is None or not self._classes.knows(self._state.jobs[task.job]):
                continue
            if task.is_preemptible:
                to_pin[task.job, task.queue_row].append(task)
            else:
                to_free.append(task)
        self._tasks.charge_as(to_free, is_preemptible=True)  # first: this frees quota
        self._told.intersection_update(key for key, _ in to_pin)
        if to_pin:
            self._pin(to_pin)

    def _are_extras(self, key: JobKey, tasks: Sequence[Task]) -> bool:
        """Return whether the gang has its minimum in the quota without `tasks`."""
        job = self._state.jobs[key]
        pinned = sum(not t.is_preemptible for t in job.tasks.values() if t.status.is_active)
        is_by_job = all(task.own_preemptible is None for task in tasks)
        return is_elastic(job) and is_by_job and pinned >= max(job.min_member, 1)

    def _pin_extras(self, row: int, tasks: Sequence[Task], quota: PinnedQuota) -> None:
        """Let those extra pods be non-preemptible that the quota has room for, the oldest first."""
        in_order = sorted(tasks, key=lambda task: (task.bound_at or math.inf, task.order))
        fitting = [task for task in in_order if not quota.take(row, [task])]
        self._tasks.charge_as(fitting, is_preemptible=False)

    def _pin(self, asked: Mapping[tuple[JobKey, int], Sequence[Task]]) -> None:
        queues, quota = self._state.queues, PinnedQuota(self._state)
        least_refused: dict[tuple[int, Shape], int] = {}
        """Queue row and shape -> fewest pods that were refused: owners may ask for thousands."""
        for (key, row), tasks in asked.items():
            alike = (row, tasks[0].shape)
            if key in self._told and len(tasks) >= least_refused.get(alike, len(tasks) + 1):
                continue
            entries = [queues.entries[at] for at in queues.chain(row)]
            chain = [(entry.name, entry.access) for entry in entries]
            refusal = refusal_of_pins(chain, key.namespace, self._namespaces)
            reason, text = (refusal.reason, refusal.text) if refusal is not None else ("", "")
            if self._are_extras(key, tasks):
                if refusal is None:
                    self._pin_extras(row, tasks, quota)
                continue
            if refusal is None:
                reason, text = JobReason.NON_PREEMPTIBLE_OVER_QUOTA, quota.take(row, tasks)
            if not text:
                self._tasks.charge_as(tasks, is_preemptible=False)
                continue
            least_refused[alike] = len(tasks)
            if key not in self._told:
                self._told.add(key)
                self._report(tasks[0], reason, f"bound pods stay preemptible: {text}")
