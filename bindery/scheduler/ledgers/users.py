"""The ledger of users: what each holds in the queues that are fair between their users.

A session has it only while a job waits in such a queue.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bindery.scheduler.ledgers.base import Operation, OperationKind
from bindery.scheduler.model.jobs import NO_ROW, Job, JobKey, Task
from bindery.scheduler.model.resources import Request
from bindery.scheduler.model.state import PlanState


def user_of(label: str, of_group: Mapping[str, str], of_pods: Iterable[Mapping[str, str]]) -> str:
    """Return the user of a job: the value of `label` of its PodGroup, else of its pods.

    If its pods differ, the first value in alphabetical order counts. "" if none has the label.
    `of_group`, `of_pods`: the labels of the PodGroup and of each pod.
    """
    values = (labels.get(label) for labels in of_pods)
    return of_group.get(label) or min((value for value in values if value), default="")


class UserLedger:
    """Updates the amounts of users with Statements."""

    name = "users"

    def __init__(self, state: PlanState) -> None:
        entries = state.queues.entries
        self._state = state
        self._labels = {row: each.user_label for row, each in enumerate(entries) if each.user_label}
        self._held: dict[tuple[int, str], NDArray[np.float64]] = {}
        """Queue row and user -> [resource] amounts of active and pipelined pods."""
        self._users: dict[tuple[int, JobKey], str] = {}
        self._changes: defaultdict[int, list[str]] = defaultdict(list)
        self._sum_up()

    def _sum_up(self) -> None:
        """Add up the active pods. Equal pods share a request, so requests are counted first."""
        names = {self._state.queues.entries[row].name for row in self._labels}
        counts: defaultdict[tuple[int, str], Counter[int]] = defaultdict(Counter)
        requests: dict[int, Request] = {}
        for job in self._state.jobs.values():
            if names.isdisjoint(job.charged):
                continue
            for task in job.tasks.values():
                row = task.queue_row
                if row in self._labels and task.status.is_active:
                    request = self._request(task, task.row)
                    requests[id(request)] = request
                    counts[row, self.user(row, job)][id(request)] += 1
        for (row, user), counted in counts.items():
            for key, count in counted.items():
                self._add(row, user, requests[key], count)

    @staticmethod
    def is_needed(state: PlanState) -> bool:
        """Return whether a job waits in a queue that is fair between its users."""
        queues = state.queues
        names = {entry.name for entry in queues.entries if entry.user_label}
        return bool(names) and any(job.queue in names for job in state.waiting.values())

    def is_fair(self, row: int) -> bool:
        """Return whether the users of the queue at `row` take turns."""
        return row in self._labels

    def user(self, row: int, job: Job) -> str:
        """Return the user of `job` in the queue at `row`, which is fair between its users."""
        key = (row, job.key)
        user = self._users.get(key)
        if user is None:
            of_pods = (task.labels for task in job.tasks.values())
            user = self._users[key] = user_of(self._labels[row], job.labels, of_pods)
        return user

    def held(self, row: int, user: str) -> NDArray[np.float64]:
        """Return what `user` holds in the queue at `row`: [resource]."""
        held = self._held.get((row, user))
        return np.zeros(len(self._state.axis)) if held is None else held

    def changes(self, row: int) -> Sequence[str]:
        """Return the users of the queue at `row` whose amounts changed, in order of the changes."""
        return self._changes[row]

    def apply(self, operation: Operation) -> None:
        """Enter `operation`."""
        self._note(operation, -1 if operation.kind is OperationKind.EVICT else 1)

    def revert(self, operation: Operation) -> None:
        """Undo `operation`."""
        self._note(operation, 1 if operation.kind is OperationKind.EVICT else -1)

    def _note(self, operation: Operation, sign: int) -> None:
        user = self._enter(operation.task, operation.row, sign)
        if user is not None:
            self._changes[operation.task.queue_row].append(user)

    def _enter(self, task: Task, node_row: int, sign: int) -> str | None:
        row = task.queue_row
        if row not in self._labels:
            return None
        user = self.user(row, self._state.jobs[task.job])
        self._add(row, user, self._request(task, node_row), sign)
        return user

    def _request(self, task: Task, node_row: int) -> Request:
        """Return what `task` counts in its queue if it is on the node at `node_row`."""
        if node_row == NO_ROW:
            return task.shape.request.in_queues
        return self._state.nodes.charge(node_row, task.shape.request)

    def _add(self, row: int, user: str, request: Request, count: int) -> None:
        held = self._held.get((row, user))
        if held is None:
            held = self._held[row, user] = np.zeros(len(self._state.axis))
        for index, amount in zip(request.indices, request.amounts, strict=True):
            held[index] += count * amount
