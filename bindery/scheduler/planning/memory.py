"""The memory of earlier cycles in one session: failures, promises, stale gangs.

Used by `facts`. The cache has the memory; all answers are for the time of the session.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from bindery.api import keptroom
from bindery.api.keptroom import KeptRoom
from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.stage_rooms import KeptPlace
from bindery.scheduler.cache.staleness import Staleness
from bindery.scheduler.model.gangs import Group
from bindery.scheduler.model.jobs import Job, Task, TaskStatus, Uid
from bindery.scheduler.model.reasons import JobReason
from bindery.scheduler.model.stages import Stage

_LOST = frozenset({TaskStatus.RELEASING, TaskStatus.STUCK, TaskStatus.FAILED})


def _bound_at(task: Task) -> float:
    """Return when `task` was bound; it is infinite while it is being bound."""
    return math.inf if task.bound_at is None else task.bound_at


class Memory:
    """The results of earlier cycles. `now`: seconds since the epoch."""

    def __init__(self, cluster: Cluster, now: float) -> None:
        self._cluster = cluster
        self._now = now

    @property
    def changes(self) -> int:
        """Number of watch events, since the start of the process, that may have changed a plan."""
        return self._cluster.intake.changes

    # -- failures --------------------------------------------------------------------------------

    @property
    def cooldown_s(self) -> float:
        """For how long a node is avoided after a failure."""
        return self._cluster.failures.cooldown_s

    def avoided_nodes(self, job: Job) -> list[str]:
        """Return the names of the nodes where binding the job failed recently."""
        return self._cluster.failures.avoided(job.key, self._now)

    def postponed(self, job: Job) -> str | None:
        """Return why the job is not planned for now; None if it is."""
        return self._cluster.failures.postponed(job.key, self._now)

    def set_aside(self, job: Job) -> str | None:
        """Return why `job` is set aside, as planning it took too long; None if it is not."""
        return self._cluster.failures.set_aside.why(job.key, self._now)

    def was_set_aside(self, job: Job) -> bool:
        """Return whether planning `job` took too long lately, so that it has more time now."""
        return self._cluster.failures.set_aside.has(job.key)

    def refused_room(self, job: Job) -> str | None:
        """Return why pods could not be evicted for `job` recently; None if not so."""
        return self._cluster.failures.refused_room(job.key, self._now)

    def has_tried_enough(self, job: Job) -> bool:
        """Return whether evictions for `job` were refused too often for another plan now."""
        return self._cluster.failures.has_tried_enough(job.key, self._now)

    @cached_property
    def spared(self) -> frozenset[Uid]:
        """Pods with a recently refused eviction."""
        return self._cluster.failures.spared(self._now)

    # -- promises --------------------------------------------------------------------------------

    def has_room_coming(self, job: Job) -> bool:
        """Return whether pods were recently evicted for `job`."""
        return self._cluster.promises.holds(job.key)

    def promised_rows(self, job: Job) -> dict[Uid, int]:
        """Return the node rows that earlier plans have promised to pods of `job`."""
        rows = self._cluster.state.nodes.rows
        places = dict(self._cluster.promises.places(job.key))
        if job.stages:
            places |= self._cluster.stage_rooms.places(job.key)
        return {uid: rows[name] for uid, name in places.items() if name in rows}

    # -- later stages ----------------------------------------------------------------------------

    def knows_rooms(self, job: Job) -> bool:
        """Return whether it is known where room was kept for later stages of `job`."""
        return self._cluster.stage_rooms.knows(job.key)

    def room_counts(self, job: Job, stage: str) -> Mapping[tuple[str, int], int]:
        """Return for how many future pods of `stage` room was kept: by sub-group and node row.

        Empty if a node is gone.
        """
        rows = self._cluster.state.nodes.rows
        found = self._cluster.stage_rooms.counts(job.key, stage).items()
        if any(place.node_name not in rows for place, _ in found):
            return {}
        return {(place.leaf, rows[place.node_name]): count for place, count in found}

    def recall_rooms(self, job: Job, stages: Sequence[Stage]) -> None:
        """Note where room was kept for `stages` of `job` by the newest record of its pods."""
        found = [(task, self._record(task)) for task in job.tasks.values()]
        records = [(_bound_at(task), task.uid, record) for task, record in found if record]
        if records:
            *_, newest = max(records, key=lambda each: each[:2])
            self._cluster.stage_rooms.recall(job, stages, newest)

    def _record(self, task: Task) -> KeptRoom | None:
        """Return the record of `task`, or the one in its BindRequest."""
        if task.kept_room is not None or not task.status.is_active:
            return task.kept_room
        hold = self._cluster.holds.get(task.uid)
        return keptroom.from_data(hold.data.get(keptroom.PLUGIN_DATA)) if hold is not None else None

    def keep_room(self, job: Job, stage: str, places: Mapping[Uid, KeptPlace]) -> None:
        """Note the places for which room is kept for the future pods of `stage`."""
        self._cluster.stage_rooms.keep(job.key, stage, places)

    def kept_rooms(self, job: Job) -> KeptRoom | None:
        """Return where room is kept for later stages of `job`; None for none."""
        return self._cluster.stage_rooms.record(job.key) if job.stages else None

    def let_room_go(self, job: Job, stage: str, text: str = "") -> None:
        """Keep no room for `stage` any longer; if there was any, report an event with `text`."""
        group = self._cluster.groups.get(job.key)
        if self._cluster.stage_rooms.let_go(job.key, stage) and group is not None and text:
            self._cluster.report_group(JobReason.STAGE_ROOM_RELEASED, group.metadata, text)

    # -- stale gangs -----------------------------------------------------------------------------

    def note_stale(self, parts: Sequence[tuple[Job, str]]) -> None:
        """Note that `parts` (job, sub-group or "") are below their minimum, and no other parts."""
        self._cluster.staleness.note(parts, self._cluster.groups, self._now)

    def note_whole(self, job: Job, group: Group | None = None) -> None:
        """Note that `job`, or its sub-group `group`, has its minimum."""
        staleness, name = self._cluster.staleness, group.name if group is not None else ""
        if not staleness.is_whole(job.key, name):
            leaves = frozenset(leaf.name for leaf in group.leaves()) if group is not None else None
            staleness.note_whole(job.key, name, leaves)

    def has_lost(self, job: Job, name: str, tasks: Iterable[Task]) -> bool:
        """Return whether the part `name`, with its `tasks`, is below its minimum by a loss.

        Otherwise its minimum was raised, and the missing pods never ran. A scheduler that has not
        seen the part with its minimum assumes a loss.
        """
        if any(task.status in _LOST for task in tasks):
            return True
        return not self._cluster.staleness.is_whole(job.key, name)

    def staleness(self, job: Job, name: str) -> Staleness:
        """Return the staleness of the part `name` of `job`, which must have been noted."""
        return self._cluster.staleness.of(job, name, self._now)
