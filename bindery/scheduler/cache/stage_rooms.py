"""The nodes on which room was kept for later stages in the last cycle.

Owned by cluster.py. Only a hint: a plan prefers the same nodes, so that the room of several gangs
stays compatible, and the end of a room is reported once. The binder records the nodes on pods of
the gang when it binds them; a restarted scheduler begins with these records.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from bindery.api.keptroom import KeptRoom
from bindery.api.states import MOST_GANG_PODS
from bindery.scheduler.cache.future_pods import future_uid
from bindery.scheduler.model.jobs import Job, JobKey, Uid
from bindery.scheduler.model.stages import Stage


class KeptPlace(NamedTuple):
    """The place of a future pod."""

    leaf: str
    """Its sub-group."""
    node_name: str


class StageRooms:
    """Job and stage -> future pod -> its place."""

    def __init__(self) -> None:
        self._places: dict[JobKey, dict[str, Mapping[Uid, KeptPlace]]] = {}

    def keep(self, job: JobKey, stage: str, places: Mapping[Uid, KeptPlace]) -> None:
        """Note where room is kept for `stage`."""
        self._places.setdefault(job, {})[stage] = places

    def places(self, job: JobKey) -> dict[Uid, str]:
        """Return the nodes of the future pods of `job`."""
        kept = self._places.get(job, {})
        return {uid: at.node_name for places in kept.values() for uid, at in places.items()}

    def knows(self, job: JobKey) -> bool:
        """Return whether it is known where room was kept for later stages of `job`."""
        return any(self._places.get(job, {}).values())

    def counts(self, job: JobKey, stage: str) -> Counter[KeptPlace]:
        """Return how many future pods of `stage` of `job` have each place."""
        return Counter(self._places.get(job, {}).get(stage, {}).values())

    def record(self, job: JobKey) -> KeptRoom | None:
        """Return the nodes of all later stages of `job` for a pod's record; None for none."""
        rooms: dict[str, Counter[str]] = {}
        for places in self._places.get(job, {}).values():
            for at in places.values():
                rooms.setdefault(at.leaf, Counter())[at.node_name] += 1
        if not rooms:
            return None
        return KeptRoom(rooms={leaf: dict(counts) for leaf, counts in rooms.items()})

    def recall(self, job: Job, stages: Iterable[Stage], record: KeptRoom) -> None:
        """Note the recorded nodes of `stages` of `job`, as if this process had kept the room."""
        for stage in stages:
            places: dict[Uid, KeptPlace] = {}
            for leaf in stage.group.leaves():
                nodes = Counter(record.rooms.get(leaf.name, {})).elements()
                lacking = min(max(0, job.lacking(leaf)), MOST_GANG_PODS)
                for index, node_name in enumerate(islice(nodes, lacking)):
                    uid = future_uid(job.uid, leaf.name, index)
                    places[uid] = KeptPlace(leaf.name, node_name)
            if places:
                self.keep(job.key, stage.name, places)

    def let_go(self, job: JobKey, stage: str) -> bool:
        """Forget the room of `stage`; return whether there was any."""
        return self._places.get(job, {}).pop(stage, None) is not None

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Have the same rooms after the block as before it."""
        kept = {job: dict(stages) for job, stages in self._places.items()}
        try:
            yield
        finally:
            self._places = kept

    def forget(self, job: JobKey) -> None:
        """Forget a deleted job."""
        self._places.pop(job, None)
