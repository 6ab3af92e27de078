"""Rounds: the next cycle continues a cycle that ran out of time, so every job has its turn.

A round runs every action over the jobs that wait when the action begins. A cycle without a deadline
is one whole round. At the deadline a cycle ends between two jobs. The next cycle, with fresh state,
continues with the untried jobs of the action, and then with the later actions. The bound: every
cycle tries at least one of these jobs, and no job joins them later, so `n` waiting jobs and `a`
actions need at most `a * (n + 1)` cycles a round. Newcomers have a part of each cycle for
themselves, so that they do not wait for the end of a long round.

The clock is an argument. Nothing here reads or changes the plan.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from bindery.scheduler.model.jobs import Job, JobKey

LEAST_PART = 0.5
"""The part of its budget that a cycle has at least for the action that it continues, counted from
the first job. Work for all jobs and promised room may take the rest. Before that, the cycle spends
at most this part on free room, or on newcomers."""

MOST_RESERVED = 0.2
"""The part of its budget that a cycle keeps at most for its end: reports and the undoing of
promises."""


class CycleStoppedError(Exception):
    """The cycle was stopped; it undoes the part of its plan that it has not yielded."""


class Deadline:
    """The end of a cycle's time for further jobs. `clock`: seconds, monotonic."""

    def __init__(self, budget_s: float, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.budget_s = budget_s
        self._started_s = clock()
        self._reserved_s = 0.0
        self._is_stopped = False

    def reserve(self, end_s: float) -> None:
        """Keep `end_s` of the budget for the end of the cycle; at most `MOST_RESERVED` of it."""
        self._reserved_s = min(end_s, MOST_RESERVED * self.budget_s)

    def has_passed(self) -> bool:
        """Return whether the budget is used up, apart from what is kept for the end."""
        return self.clock() - self._started_s >= self.budget_s - self._reserved_s

    def stop(self) -> None:
        """End the cycle with an error. Other threads may call this."""
        self._is_stopped = True

    def check(self) -> None:
        """Raise CycleStoppedError if the cycle must stop."""
        if self._is_stopped:
            raise CycleStoppedError


@dataclass(frozen=True, slots=True)
class Position:
    """The point at which a cycle ended before the end of its round."""

    action: str
    """The action to continue with."""
    left: frozenset[JobKey] | None = None
    """The untried jobs; None: the action has not begun."""
    known: frozenset[JobKey] = frozenset()
    """The jobs that are no newcomers: they waited when the action began, or were tried since."""
    reserved: frozenset[JobKey] = frozenset()
    """The jobs with a reservation, which is made again before other jobs are served."""


class TurnKind(Enum):
    """The part of a cycle's time for a turn."""

    PRELIMINARY = auto()
    """`LEAST_PART` at most: it uses free room before a later action is continued."""
    FIRST = auto()
    """Until the deadline, but at least `LEAST_PART`."""
    LATER = auto()
    """Until the deadline."""


class Turn:
    """The jobs that one action may try in one cycle; all by default."""

    def __init__(
        self,
        deadline: Deadline | None = None,
        kind: TurnKind = TurnKind.LATER,
        *,
        start: Position | None = None,
    ) -> None:
        """`start`: the end of the last cycle, if this turn continues its action."""
        self._deadline = deadline
        self._kind = kind
        self._left = start.left if start is not None else None
        self._known = start.known if start is not None else frozenset()
        self._members: frozenset[JobKey] = frozenset()
        self._tried: dict[JobKey, None] = {}
        """In the order of trying."""
        self.reserved = start.reserved if start is not None else frozenset()
        """Jobs with a reservation in the last cycle, if this cycle continues it."""
        self.is_cut = False
        """Whether it ended before its work was done."""

    @property
    def untried(self) -> frozenset[JobKey]:
        """The untried members."""
        return self._members - self._tried.keys()

    def has_tried(self, job: Job) -> bool:
        """Return whether `job` was tried in this cycle."""
        return job.key in self._tried

    def order(self, before: Iterable[JobKey]) -> list[JobKey]:
        """Return the jobs in the order of trying. `before`: the result of the last cycle's turn.

        A cycle that is cut, or that continues another, has tried some of them only.
        """
        others = [key for key in before if key not in self._tried]
        if self._left is not None:
            return [*others, *self._tried]
        return [*self._tried, *(others if self.is_cut else ())]

    def members(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the `jobs` that the action has not tried in this round."""
        left = self._left
        found = [job for job in jobs if left is None or job.key in left]
        self._members = frozenset(job.key for job in found)
        return found

    def newcomers(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the `jobs` that came after the action began, in an earlier cycle."""
        if self._left is None:
            return []
        return [job for job in jobs if job.key not in self._known]

    @property
    def known(self) -> frozenset[JobKey]:
        """The jobs that are no newcomers in the next cycle."""
        return self._known | self._members | self._tried.keys()

    def take(self, work: Iterable[Job]) -> Iterator[Job]:
        """Yield jobs of `work`, at least one, until the deadline; raises CycleStoppedError."""
        self.is_cut = yield from self._take(work, self._kind)

    def take_newcomers(self, work: Iterable[Job]) -> Iterator[Job]:
        """Yield jobs of `work` for `LEAST_PART` of the budget; at least one.

        Raises:
            CycleStoppedError: the cycle must stop.
        """
        yield from self._take(work, TurnKind.PRELIMINARY)

    def _take(self, work: Iterable[Job], kind: TurnKind) -> Generator[Job, None, bool]:
        """Yield jobs of `work`; return whether time ended before them."""
        deadline, since_s = self._deadline, None
        for job in work:
            if deadline is not None:
                deadline.check()
                if since_s is not None and _is_over(deadline, since_s, kind):
                    return True
            self._tried[job.key] = None
            yield job
            # After the first job: preparations for all jobs do not count.
            if deadline is not None and since_s is None:
                since_s = deadline.clock()
        return False


def _is_over(deadline: Deadline, since_s: float, kind: TurnKind) -> bool:
    """Return whether the time is over. `since_s`: when the first job had been tried."""
    has_had_part = deadline.clock() - since_s >= LEAST_PART * deadline.budget_s
    if kind is TurnKind.PRELIMINARY:
        return has_had_part
    return deadline.has_passed() and (has_had_part or kind is TurnKind.LATER)


class Round:
    """The turns of one cycle. `actions`: the actions that try job by job, in order.

    `position`: the end of the last cycle, if it was cut. `deadline`: None for a whole round.
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
        self._ended_s: float | None = None
        """When all actions had had their turns."""
        self.is_cut = False
        """Whether the cycle ended before its work was done."""

    @property
    def has_deadline(self) -> bool:
        """Whether the cycle may be cut."""
        return self._deadline is not None

    def turn(self, action: str, *, fills: bool) -> Turn | None:
        """Return the turn of the next action, `action`; None: it has none in this cycle.

        `fills`: it uses free room, so it also has a turn if the cycle continues a later action.
        """
        start = self._start
        if self.is_cut:
            return None
        if start is None or self._has_begun:
            # The first action of a cycle always has a turn, so every cycle makes progress.
            if self._has_begun and self._deadline is not None and self._deadline.has_passed():
                self.is_cut, self._position = True, Position(action)
                return None
            kind = TurnKind.LATER if self._has_begun else TurnKind.FIRST
            self._has_begun = True
            return Turn(self._deadline, kind)
        if action == start.action:
            self._has_begun = True
            return Turn(self._deadline, TurnKind.FIRST, start=start)
        if not fills:
            return None
        return Turn(self._deadline, TurnKind.PRELIMINARY, start=replace(start, left=None))

    def finish(self, action: str, turn: Turn) -> None:
        """Note how `turn` ended."""
        # A cut preliminary turn only used free room; the round is at another action.
        if not turn.is_cut or not self._has_begun:
            return
        self.is_cut = True
        after = self._actions[self._actions.index(action) + 1 :]
        if turn.untried:
            self._position = Position(action, turn.untried, turn.known)
        elif after:
            self._position = Position(after[0])

    def end(self) -> None:
        """Note that all actions have had their turns: the end of the cycle begins."""
        self._ended_s = self._deadline.clock() if self._deadline is not None else None

    def end_took_s(self) -> float:
        """Return how long the end of the cycle has taken; 0 without a deadline."""
        if self._deadline is None or self._ended_s is None:
            return 0.0
        return self._deadline.clock() - self._ended_s

    def position(self, reserved: Iterable[Job]) -> Position | None:
        """Return where the next cycle continues; None: it begins a round.

        `reserved`: the jobs with a reservation at the end of this cycle.
        """
        if self._position is None:
            return None
        return replace(self._position, reserved=frozenset(job.key for job in reserved))
