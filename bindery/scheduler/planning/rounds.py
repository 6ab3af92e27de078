"""Rounds: a cycle that runs out of time is continued by the next, so that every job has its turn.

A round runs every action over the jobs that wait when the action begins. A cycle without a deadline
is one whole round. A cycle whose deadline passes ends between two jobs; the next cycle, with fresh
state, continues with the jobs that the action has not tried, then with the actions after it. The
bound: every cycle tries at least one of these jobs, and no job joins them later, so `n` waiting
jobs and `a` actions need at most `a * (n + 1)` cycles a round.

The clock is passed in. Nothing here reads or changes the plan.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from bindery.scheduler.model.jobs import Job, JobKey

LEAST_PART = 0.5
"""The part of its budget that a cycle always spends on the action that it continues, counted from
the first job on: what is done for all jobs, and promised room, may have taken the rest. As much it
spends at most on free room before that."""


class CycleStoppedError(Exception):
    """The cycle was told to stop: what it has not handed out is taken back."""


class Deadline:
    """The time until which a cycle takes up further jobs. `clock`: seconds, monotonic."""

    def __init__(self, budget_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.budget_s = budget_s
        self._started_s = clock()
        self._is_stopped = threading.Event()

    def has_passed(self) -> bool:
        """Return whether the budget has been used."""
        return self.clock() - self._started_s >= self.budget_s

    def stop(self) -> None:
        """Let the cycle end with an error. May be called from another thread."""
        self._is_stopped.set()

    def check(self) -> None:
        """Raise CycleStoppedError if the cycle is to stop."""
        if self._is_stopped.is_set():
            raise CycleStoppedError


@dataclass(frozen=True, slots=True)
class Position:
    """Where a cycle ended before its round was over."""

    action: str
    """The action to continue with."""
    left: frozenset[JobKey] | None = None
    """The jobs that it has not tried; None: it has not begun."""
    reserved: frozenset[JobKey] = frozenset()
    """The jobs that had a reservation: it is made again before others are served."""


class TurnKind(Enum):
    """Which part of a cycle's time a turn has."""

    PRELIMINARY = auto()
    """Only free room is used before a later action is continued: `LEAST_PART`, and no more."""
    FIRST = auto()
    """Until the deadline, and `LEAST_PART` even if it passes earlier."""
    LATER = auto()
    """Until the deadline."""


class Turn:
    """What one action may try in one cycle; by default everything."""

    def __init__(
        self,
        deadline: Deadline | None = None,
        kind: TurnKind = TurnKind.LATER,
        *,
        left: frozenset[JobKey] | None = None,
        reserved: frozenset[JobKey] = frozenset(),
    ) -> None:
        self._deadline = deadline
        self._kind = kind
        self._left = left
        self._members: frozenset[JobKey] = frozenset()
        self._tried: set[JobKey] = set()
        self.reserved = reserved
        """Jobs that had a reservation in the last cycle, which this one continues."""
        self.is_cut = False
        """Whether it ended before its work did."""

    @property
    def untried(self) -> frozenset[JobKey]:
        """The members that have not been tried."""
        return self._members - self._tried

    def has_tried(self, job: Job) -> bool:
        """Return whether `job` was tried in this cycle."""
        return job.key in self._tried

    def members(self, jobs: Iterable[Job]) -> list[Job]:
        """Return those of `jobs` that the action has not tried in this round."""
        left = self._left
        found = [job for job in jobs if left is None or job.key in left]
        self._members = frozenset(job.key for job in found)
        return found

    def take(self, work: Iterable[Job]) -> Iterator[Job]:
        """Yield jobs of `work` until the deadline passes; at least one.

        Raises:
            CycleStoppedError: the cycle is to stop.
        """
        deadline, since_s = self._deadline, None
        for job in work:
            if deadline is not None:
                deadline.check()
                if since_s is not None and self._is_over(deadline, since_s):
                    self.is_cut = True
                    return
            self._tried.add(job.key)
            yield job
            if deadline is not None and since_s is None:
                since_s = deadline.clock()

    def _is_over(self, deadline: Deadline, since_s: float) -> bool:
        """Return whether no more jobs are taken up. `since_s`: when the first had been tried."""
        has_had_part = deadline.clock() - since_s >= LEAST_PART * deadline.budget_s
        if self._kind is TurnKind.PRELIMINARY:
            return has_had_part
        return deadline.has_passed() and (has_had_part or self._kind is TurnKind.LATER)


class Round:
    """The turns of one cycle. `actions`: those that try job by job, in their order.

    `position`: where the last cycle ended, if it was cut. `deadline`: None for a whole round.
    """

    def __init__(
        self,
        actions: Sequence[str],
        deadline: Deadline | None = None,
        position: Position | None = None,
    ) -> None:
        self._actions = actions
        self._deadline = deadline
        self._start = position if position is not None and position.action in actions else None
        self._has_begun = False
        """Whether an action of this round has had its turn in this cycle."""
        self._position: Position | None = None
        self.is_cut = False
        """Whether the cycle ended before its work did."""

    @property
    def has_deadline(self) -> bool:
        """Whether the cycle may be cut."""
        return self._deadline is not None

    def turn(self, action: str, *, fills: bool) -> Turn | None:
        """Return the turn of `action`, which comes next; None: it has none in this cycle.

        `fills`: it uses free room, so it has a turn also where the cycle continues a later one.
        """
        start = self._start
        if self.is_cut:
            return None
        if start is None or self._has_begun:
            if self._has_begun and self._deadline is not None and self._deadline.has_passed():
                self.is_cut, self._position = True, Position(action)
                return None
            kind = TurnKind.LATER if self._has_begun else TurnKind.FIRST
            self._has_begun = True
            return Turn(self._deadline, kind)
        if action == start.action:
            self._has_begun = True
            return Turn(self._deadline, TurnKind.FIRST, left=start.left, reserved=start.reserved)
        if not fills:
            return None
        return Turn(self._deadline, TurnKind.PRELIMINARY, reserved=start.reserved)

    def finish(self, action: str, turn: Turn) -> None:
        """Take note of how `turn` ended."""
        if not turn.is_cut or not self._has_begun:
            return
        self.is_cut = True
        after = self._actions[self._actions.index(action) + 1 :]
        if turn.untried:
            self._position = Position(action, turn.untried)
        elif after:
            self._position = Position(after[0])

    def position(self, reserved: Iterable[Job]) -> Position | None:
        """Return where the next cycle continues; None: it begins a round.

        `reserved`: the jobs that have a reservation at the end of this cycle.
        """
        if self._position is None:
            return None
        return replace(self._position, reserved=frozenset(job.key for job in reserved))
