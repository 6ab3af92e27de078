"""Runs planning cycles in the event loop, draft by draft, with drawn time in between.

A runner of cycles for histories (`bindery.scheduler.cycles`). Time passes when the cycle looks at a
clock: then it has worked for a moment. The event loop catches up after each draft. So budgets and
limits apply, and everything else may happen between two drafts, as beside a thread.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import closing

from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.cycles import CycleHangsError
from bindery.scheduler.planning.rounds import CycleStoppedError, Deadline


class SteppedCycles:
    """Implements `CycleRunner`. `draw_s` draws how long a cycle works until its next look."""

    def __init__(self, draw_s: Callable[[], float]) -> None:
        self._draw_s = draw_s
        self._worked_s = 0.0
        self._ahead_s = 0.0
        """Seconds by which the running cycle is ahead of the event loop."""
        self._end_s: float | None = None
        self.dropped: list[StatementDraft] = []
        self.has_finished = False

    def clock(self) -> float:
        """Return the time of the event loop; within a cycle, some work later."""
        self._work()
        return asyncio.get_running_loop().time() + self._ahead_s

    def stopwatch(self) -> float:
        """Return the seconds for which the cycles have worked, after some work."""
        self._work()
        return self._worked_s

    def is_healthy(self) -> bool:
        """Return whether no cycle has been running for longer than its limit."""
        return self._end_s is None or asyncio.get_running_loop().time() <= self._end_s

    async def run(
        self,
        cycle: Generator[StatementDraft, None, None],
        take: Callable[[StatementDraft], None],
        deadline: Deadline,
        limit_s: float,
    ) -> None:
        """Run `cycle`; see `CycleRunner.run`."""
        self.dropped, self.has_finished = [], False
        self._end_s = asyncio.get_running_loop().time() + limit_s
        with closing(cycle):
            try:
                while (draft := next(cycle, None)) is not None:
                    take(draft)
                    await self._catch_up(limit_s)
                await self._catch_up(limit_s)
            except asyncio.CancelledError:
                self._stop(cycle, deadline)
                raise
            finally:
                self._ahead_s, self._end_s = 0.0, None
        self.has_finished = True

    async def _catch_up(self, limit_s: float) -> None:
        assert self._end_s is not None, "a cycle runs"
        ahead_s, self._ahead_s = self._ahead_s, 0.0
        await asyncio.sleep(ahead_s)
        if asyncio.get_running_loop().time() > self._end_s:
            raise CycleHangsError(limit_s, "")

    def _stop(self, cycle: Generator[StatementDraft, None, None], deadline: Deadline) -> None:
        """Stop as a thread does: in the middle of the step to the next draft."""
        deadline.stop()
        try:
            draft = next(cycle, None)
        except CycleStoppedError:
            return
        if draft is None:
            self.has_finished = True
        else:
            self.dropped.append(draft)

    def _work(self) -> None:
        took_s = self._draw_s() if self._end_s is not None else 0.0
        self._worked_s += took_s
        self._ahead_s += took_s
