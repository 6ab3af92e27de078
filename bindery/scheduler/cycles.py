"""What the loop asks of the runner of its cycles.

`process` gets a runner as an argument. In production it is `background`, which runs each cycle in a
thread of its own; a test may run them in the event loop, step by step.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Protocol

from bindery.scheduler.commit.drafts import StatementDraft
from bindery.scheduler.planning.rounds import Deadline


class CycleHangsError(Exception):
    """A cycle does not end. `stack`: the stack of its thread, formatted as in a traceback."""

    def __init__(self, after_s: float, stack: str) -> None:
        self.stack, self.after_s = stack, after_s
        super().__init__(f"a planning cycle has not ended after {after_s:.0f} s")


class CycleRunner(Protocol):
    """Runs cycles one after another."""

    @property
    def dropped(self) -> Sequence[StatementDraft]:
        """Drafts of the last cycle after its stop, which were not passed to `take`."""
        ...

    @property
    def has_finished(self) -> bool:
        """Whether the last cycle ended normally, even if it was stopped."""
        ...

    def clock(self) -> float:
        """Return the seconds by which the budget of a cycle is measured. A cycle may call it."""
        ...

    def stopwatch(self) -> float:
        """Return the seconds for which the cycles have worked. Only a cycle calls it."""
        ...

    def is_healthy(self) -> bool:
        """Return whether no cycle has been running for longer than its limit."""
        ...

    async def run(
        self,
        cycle: Generator[StatementDraft, None, None],
        take: Callable[[StatementDraft], None],
        deadline: Deadline,
        limit_s: float,
    ) -> None:
        """Run `cycle` to its end; when cancelled, stop it between two jobs and wait for its end.

        `take` is called with each draft, in the event loop. At the end `cycle` is closed, and the
        drafts that it has not yielded are undone.

        Raises:
            CycleHangsError: it has not ended after `limit_s`, or not after a cancellation.
            Exception: any error of the cycle.
        """
        ...
