"""The nodes on which room was kept for later stages in the last cycle.

Owned by cluster.py. Only a hint: a plan prefers the same nodes, so that the room of several gangs
stays compatible, and the end of a room is reported once. A restarted scheduler finds room again
from the objects alone.
"""

from collections.abc import Mapping

from bindery.scheduler.model.jobs import JobKey, Uid


class StageRooms:
    """Job and stage -> future pod -> node name."""

    def __init__(self) -> None:
        self._places: dict[JobKey, dict[str, Mapping[Uid, str]]] = {}

    def keep(self, job: JobKey, stage: str, places: Mapping[Uid, str]) -> None:
        """Note where room is kept for `stage`."""
        self._places.setdefault(job, {})[stage] = places

    def places(self, job: JobKey) -> dict[Uid, str]:
        """Return the nodes of the future pods of `job`."""
        kept = self._places.get(job, {})
        return {uid: name for places in kept.values() for uid, name in places.items()}

    def let_go(self, job: JobKey, stage: str) -> bool:
        """Forget the room of `stage`; return whether there was any."""
        return self._places.get(job, {}).pop(stage, None) is not None

    def forget(self, job: JobKey) -> None:
        """Forget a deleted job."""
        self._places.pop(job, None)
