"""The memory of searches without a plan: they are not repeated while nothing has changed.

Consolidation uses it, whose result depends on room and on running pods, hardly on time. A search
takes long, and without it an idle cluster with one gang that does not fit searches in each cycle.
"""

from collections.abc import Hashable
from typing import Final

from bindery.scheduler.model.jobs import Task, TaskStatus, Uid
from bindery.scheduler.placing.claims import RoomClaim
from bindery.scheduler.planning.session import Session

REPEATED_AFTER_S: Final = 60.0
"""Cooldowns, and pods that may not be disturbed for some time, end without a change of an object.
So a search is repeated after this time in any case."""


class FruitlessSearches:
    """The claims for which no plan was found in the present state of the cluster."""

    def __init__(self) -> None:
        self._state: Hashable = None
        self._since = 0.0
        """Epoch seconds of the first search in this state."""
        self._lost: dict[tuple[Uid, ...], Uid | None] = {}
        """UIDs of the pods of a claim -> the pod without room; None if no search names one.

        UIDs, because each session makes the pods of later stages again."""

    def knows(self, session: Session, claim: RoomClaim) -> bool:
        """Return whether a search for `claim` in the same state found no plan."""
        state = _state(session)
        is_old = not 0 <= session.now - self._since < REPEATED_AFTER_S
        if state != self._state or is_old:
            self._state, self._since = state, session.now
            self._lost.clear()
        return _uids(claim) in self._lost

    def lost(self, claim: RoomClaim) -> Task | None:
        """Return the pod for which the search for the known `claim` found no room."""
        lost = self._lost[_uids(claim)]
        return next((task for task in claim.tasks if task.uid == lost), None)

    def add(self, claim: RoomClaim, lost: Task | None) -> None:
        """Remember that the search for `claim`, in the state of the last `knows`, found no plan."""
        self._lost[_uids(claim)] = lost.uid if lost is not None else None


def _uids(claim: RoomClaim) -> tuple[Uid, ...]:
    return tuple(task.uid for task in claim.tasks)


def _state(session: Session) -> Hashable:
    """Return a value that changes with objects, with room, and with the pods that could move."""
    nodes = session.state.nodes
    room = (nodes.idle, nodes.releasing, nodes.pipelined)
    # A binding that was expected is no change for others, but its pod can move from now on.
    running = session.once(_Running, _Running).count
    return session.memory.changes, running, *(hash(columns.tobytes()) for columns in room)


class _Running:
    """How many pods ran at the time of the first search in a session."""

    def __init__(self, session: Session) -> None:
        tasks = session.state.tasks.values()
        self.count = sum(task.status is TaskStatus.RUNNING for task in tasks)
