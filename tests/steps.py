"""A clock that counts calls of functions, so that a bound of work holds on any machine."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SECONDS_A_CALL = 0.25e-6
"""What a call of a function, of Python's or of a library's, is taken to last."""


class StepClock:
    """Read like `time.thread_time`; stands still outside of `running`."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> float:
        """Return the seconds that the calls so far are taken to last."""
        return self.calls * SECONDS_A_CALL

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the calls of this thread that begin inside."""
        before = sys.getprofile()
        sys.setprofile(self._count)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _count(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            self.calls += 1
