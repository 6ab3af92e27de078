"""The interface of actions."""

from collections.abc import Iterator
from typing import Protocol

from bindery.scheduler.planning.rounds import Turn
from bindery.scheduler.planning.session import Session
from bindery.scheduler.planning.statement import Commit


class Action(Protocol):
    """One step of a cycle."""

    @property
    def name(self) -> str:
        """The name in the configuration."""

    @property
    def tries_jobs(self) -> bool:
        """Whether it tries waiting jobs one by one; the next cycle can then continue it."""

    @property
    def fills(self) -> bool:
        """Whether it only uses free room; it then also runs if a cycle continues a later action."""

    def execute(self, session: Session, turn: Turn) -> Iterator[Commit]:
        """Plan what `turn` allows; yield the operations of each Statement when it is committed."""
