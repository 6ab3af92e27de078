"""The memory of earlier cycles in one session: failures, promises, stale gangs.

Used by `session`. The cache has the memory; all answers are for the time of the session.
"""

from collections.abc import Sequence
from functools import cached_property

from bindery.scheduler.cache.cluster import Cluster
from bindery.scheduler.cache.staleness import Staleness
from bindery.scheduler.model.jobs import Job, Uid


class Memory:
    """The results of earlier cycles. `now`: seconds since the epoch."""

    def __init__(self, cluster: Cluster, now: float) -> None:
        self._cluster = cluster
        self._now = now

    # -- failures --------------------------------------------------------------------------------

    def avoided_nodes(self, job: Job) -> list[str]:
        """Return the names of the nodes where binding the job failed recently."""
        return self._cluster.failures.avoided(job.key, self._now)

    def postponed(self, job: Job) -> str | None:
        """Return why the job is not planned for now; None if it is."""
        return self._cluster.failures.postponed(job.key, self._now)

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
        places = self._cluster.promises.places(job.key)
        return {uid: rows[name] for uid, name in places.items() if name in rows}

    # -- stale gangs -----------------------------------------------------------------------------

    def note_stale(self, parts: Sequence[tuple[Job, str]]) -> None:
        """Note that `parts` (job, sub-group or "") are below their minimum, and no other parts."""
        self._cluster.staleness.note(parts, self._cluster.groups, self._now)

    def staleness(self, job: Job, name: str) -> Staleness:
        """Return the staleness of the part `name` of `job`, which must have been noted."""
        return self._cluster.staleness.of(job, name, self._now)
