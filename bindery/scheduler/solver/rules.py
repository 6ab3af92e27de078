"""What an action allows: who may make room, whose pods may go, and which plan is acceptable."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bindery.scheduler.model.columns import BoolColumn
from bindery.scheduler.model.jobs import Job, Task
from bindery.scheduler.plugins.interface import Refusal
from bindery.scheduler.session import Session
from bindery.scheduler.solver.victims import Chunk, VictimTable


@dataclass(frozen=True, slots=True)
class Claim:
    """A gang, or one extra pod, for which room is to be made. Read before anything is evicted."""

    job: Job
    tasks: tuple[Task, ...]


class Rule(Protocol):
    """The rule of one action."""

    @property
    def name(self) -> str:
        """The action's name, for events and metrics."""
        ...

    @property
    def moves_all(self) -> bool:
        """Whether every victim must find another place."""
        ...

    @property
    def most_jobs(self) -> int | None:
        """Of how many jobs pods may go at the most; None: any number."""
        ...

    def refuse(self, session: Session, claim: Claim) -> Refusal | None:
        """Return why no room may be made for `claim` at all; None when it may."""
        ...

    def eligible(self, session: Session, claim: Claim, table: VictimTable) -> BoolColumn:
        """Return which chunks of `table` may go for `claim`, each looked at by itself."""
        ...

    def movable(self, session: Session, claim: Claim, table: VictimTable) -> BoolColumn:
        """Return which chunks may go for `claim` as long as they find other places."""
        ...

    def allows(self, session: Session, claim: Claim, chunk: Chunk) -> bool:
        """Return whether `chunk` may go next, after those that have gone in this plan."""
        ...

    def accepts(self, session: Session, claim: Claim, gone: Sequence[Chunk]) -> bool:
        """Return whether the whole plan is acceptable; `gone`: chunks that find no other place."""
        ...
