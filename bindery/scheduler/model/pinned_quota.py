"""What is left of quotas for non-preemptible pods.

Used where bound pods are to count as non-preemptible: in cache/pinning.py when their owners ask for
it, and in solver/units.py for the rest of a gang that one of them protects. Pods that are counted
here use up quota for the next ones; the columns of queues do not change.
"""

from collections.abc import Sequence
from functools import cached_property

from bindery.scheduler.model.columns import IntColumns
from bindery.scheduler.model.jobs import NO_ROW, Task
from bindery.scheduler.model.queues import Amounts, rolled_up
from bindery.scheduler.model.resources import total
from bindery.scheduler.model.state import PlanState


class PinnedQuota:
    """The quotas of all queues, and what non-preemptible pods hold of them."""

    def __init__(self, state: PlanState) -> None:
        self._state = state

    @cached_property  # seldom needed, and the sums of thousands of queues take milliseconds
    def _held(self) -> IntColumns:
        queues = self._state.queues
        return rolled_up(queues.non_preemptible, queues.chains())

    @cached_property
    def _quota(self) -> Amounts:
        return self._state.queues.rules()[0]

    def take(self, row: int, tasks: Sequence[Task]) -> str:
        """Count bound `tasks` of the queue at `row`; return "", or why they do not fit its quota.

        Tasks that do not fit are not counted.
        """
        state = self._state
        if any(task.row == NO_ROW for task in tasks):
            return "their node is not known"
        asked = total(state.nodes.charge(task.row, task.shape.request) for task in tasks)
        chain = state.queues.chain(row)
        for at in chain:
            for index, amount in asked.items():
                held, quota = int(self._held[index, at]), self._quota[index, at]
                if amount and held + amount > quota:
                    axis, name = state.axis, state.queues.entries[at].name
                    return (
                        f"non-preemptible pods of queue {name} hold {axis.display(index, held)} of "
                        f"its quota of {axis.display(index, int(quota))} {axis.names[index]}, and "
                        f"these request {axis.display(index, amount)} more"
                    )
        for at in chain:
            for index, amount in asked.items():
                self._held[index, at] += amount
        return ""
