"""The inbox of a cluster cache: changes that arrive while a cycle has the columns.

Used by the feed of the scheduler, and by the dashboard for the engine that it plans with.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Inbox:
    """Calls at once what changes the cluster, or after the cycle that runs."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._is_lent = False

    def put(self, act: Callable[[], None]) -> None:
        """Call `act`, which changes the cluster, as soon as no cycle has the columns."""
        if self._is_lent:
            self._waiting.append(act)
        else:
            act()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the columns to a cycle within the block; what arrives is called after it."""
        self._is_lent = True
        try:
            yield
        finally:
            self._is_lent = False
            # In the order of arrival; nothing can arrive in between, as nothing is awaited here.
            for act in self._waiting:
                act()
            self._waiting.clear()
