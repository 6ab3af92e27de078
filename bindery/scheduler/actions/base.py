"""What an action is."""

from collections.abc import Iterator
from typing import Protocol

from bindery.scheduler.planning.rounds import Turn
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Commit


class Action(Protocol):
    """One step of a cycle."""

    @property
    def name(self) -> str:
        """The name by which the configuration calls it."""
        ...

    @property
    def tries_jobs(self) -> bool:
        """Whether it tries waiting jobs one by one, so that the next cycle can continue it."""
        ...

    @property
    def fills(self) -> bool:
        """Whether it only uses free room: it runs also where a cycle continues a later action."""
        ...

    def execute(self, session: Session, turn: Turn) -> Iterator[Commit]:
        """Plan what `turn` allows; yield what every Statement did, as soon as it is committed."""
        ...
