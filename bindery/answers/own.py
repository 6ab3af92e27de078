"""The state of a gang or a pod, for a user with read access to only one namespace.

Nothing is planned: an answer contains the status of the user's own PodGroups and pods. It contains
no names of other tenants' objects.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from bindery.answers.evictions import GangEviction, eviction_of
from bindery.answers.listings import request_rows, scheduled_condition
from bindery.answers.ownqueues import queue_wire, queues_in
from bindery.answers.subjects import Subject, statements_about
from bindery.kube.objects.podgroups import GangQueue, Turn
from bindery.kube.objects.snapshot import ClusterSnapshot
from bindery.kube.objects.watched import Condition
from bindery.scheduler.insight.advice import advice

_WITHOUT_RIGHTS: Final = (
    "What this user may not change is for the owner of the workload; queues and nodes are for an "
    "administrator."
)
_POD_SCHEDULED: Final = "PodScheduled"


@dataclass(frozen=True)
class OwnAnswer:
    """The state of a gang or a pod in its status."""

    snapshot: ClusterSnapshot
    about: Subject
    now: datetime

    @property
    def condition(self) -> Condition | None:
        """The condition of the gang or the pod about its scheduling."""
        if self.about.group is not None:
            return scheduled_condition(self.about.group)
        conditions = self.about.pod.status.conditions or () if self.about.pod is not None else ()
        return next((each for each in conditions if each.type == _POD_SCHEDULED), None)

    @property
    def is_held(self) -> bool:
        """Whether the condition reports the job as not scheduled."""
        return self.condition is not None and self.condition.status != "True"

    @property
    def turn(self) -> Turn | None:
        """The place of the gang among the waiting ones."""
        return self.about.group.status.turn if self.about.group is not None else None

    @property
    def figures(self) -> GangQueue | None:
        """The figures of the gang's queue."""
        group, pod = self.about.group, self.about.pod
        if group is not None:
            queue = group.status.assigned_queue or self.snapshot.queue_of_group(group)
        elif pod is not None:
            queue = self.snapshot.queue_of(pod)
        else:
            return None
        return queues_in(self.snapshot).get(queue)

    @property
    def evicted(self) -> GangEviction | None:
        """The last evictions of the gang."""
        return eviction_of(self.about.group)

    @property
    def advice(self) -> str:
        """Advice to the user; may be empty."""
        condition = self.condition
        if condition is None or not self.is_held:
            return ""
        group = self.about.group
        text = advice(
            condition.reason,
            condition.message,
            where=self.about.changed,
            min_member=group.spec.min_member if group is not None else 1,
            budget_blocks=False,
        )
        return f"{text} {_WITHOUT_RIGHTS}" if text else ""

    def to_wire(self) -> object:
        """Return the answer for programs."""
        condition, group = self.condition if self.is_held else None, self.about.group
        requests = ClusterSnapshot(statements=tuple(statements_about(self.snapshot, self.about)))
        return {
            "job": self.about.key,
            "state": group.status.state if group is not None else "",
            "reason": condition.reason if condition is not None else "",
            "message": condition.message if condition is not None else "",
            "turn": msgspec.to_builtins(self.turn),
            "queue": queue_wire(self.figures) if self.figures is not None else None,
            "advice": self.advice,
            "requests": request_rows(requests, self.now),
            "planned": False,
        }
